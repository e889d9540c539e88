"""What the Learn tab shows of a training: a summary, two curves and the lists of a query."""

from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup

from doap.app.learn.events import BASELINE_NAME, AnyEvent, Data, Done, Loss, Queries, Ranks, Stage, Validation
from doap.app.rank.curves import Line, render_plot
from doap.app.rank.list_html import TEMPLATES

MAX_ROWS = 12  # lists of epochs; the first and the last are always among them


@dataclass
class LearnView:
    """The events of a training so far.

    Attributes:
        stage: What is done now, if the training has not begun.
        data: What is trained on.
        losses: Loss of each step.
        validations: Validation AP of the baseline, of the untrained model and after each epoch.
        ranks: Lists of the queries.
        queries: Query patches as data URIs.
        done: The end of the training.
        is_stopped: Whether the visitor stopped it.
        files: The weights and their card, while they exist.
        query: Number of the query whose lists are shown.
        failure: Why the training failed, as one line; empty otherwise.
    """

    stage: Stage = field(default_factory=lambda: Stage("starting", 0))
    data: Data | None = None
    losses: list[Loss] = field(default_factory=list)
    validations: list[Validation] = field(default_factory=list)
    ranks: list[Ranks] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    done: Done | None = None
    is_stopped: bool = False
    files: list[Path] = field(default_factory=list)
    query: int = 0
    failure: str = ""

    def add(self, event: AnyEvent) -> None:
        """Take note of an event."""
        if isinstance(event, Stage):
            self.stage = event
        elif isinstance(event, Data):
            self.data = event
        elif isinstance(event, Loss):
            self.losses.append(event)
        elif isinstance(event, Validation):
            self.validations.append(event)
        elif isinstance(event, Ranks):
            self.ranks.append(event)
        elif isinstance(event, Queries):
            self.queries = event.patches
        elif isinstance(event, Done):
            self.done = event

    @property
    def fraction(self) -> float:
        """The finished fraction, of the step before the training or of the training itself."""
        if self.done:
            return 1.0
        return self.losses[-1].epoch / self.data.epochs if self.data and self.losses else self.stage.done

    @property
    def line(self) -> str:
        """What is happening, as one line."""
        if self.failure:
            return f"Failed: {self.failure}"
        if self.is_stopped:
            return "Stopped. The photos and the unfinished weights are deleted."
        if self.done:
            cut = " The time limit ended the training." if self.done.is_cut else ""
            return f"Done. The best weights, of epoch {self.done.epoch}, can be downloaded below.{cut}"
        if self.data and self.losses:
            epoch = min(int(self.losses[-1].epoch) + 1, self.data.epochs)
            return f"Training: epoch {epoch} of {self.data.epochs}, loss {self.losses[-1].loss:.3f}"
        if self.data:
            return "Describing the validation patches with RootSIFT and the untrained network"
        return f"Preparing: {self.stage.text}"

    def baseline_ap(self) -> float | None:
        """Return the validation AP of the baseline, if it is known."""
        return next((value.ap for value in self.validations if value.name == BASELINE_NAME), None)

    def own_validations(self) -> list[Validation]:
        """Return the validations of the model under training."""
        return [value for value in self.validations if value.name != BASELINE_NAME]

    def lists(self) -> list[Ranks]:
        """Return the lists of the query that is shown: the untrained model, epochs up to the last, and the baseline."""
        own = [entry for entry in self.ranks if entry.query == self.query and entry.name != BASELINE_NAME]
        if len(own) > MAX_ROWS:
            own = [own[round(i * (len(own) - 1) / (MAX_ROWS - 1))] for i in range(MAX_ROWS)]
        return own + [entry for entry in self.ranks if entry.query == self.query and entry.name == BASELINE_NAME]


def render_summary(view: LearnView) -> str:
    """Render the state of a training as HTML; all texts are escaped."""
    own = view.own_validations()
    return TEMPLATES.get_template("summary.html.j2").render(
        view=view,
        percent=round(100 * min(max(view.fraction, 0), 1)),
        first=own[0].ap if own else None,
        last=own[-1].ap if len(own) > 1 else None,
        baseline=view.baseline_ap(),
    )


def render_curves(view: LearnView) -> str:
    """Render the loss of each step and the validation AP of each epoch; empty before the first step."""
    if not view.losses or view.data is None:
        return ""
    limits = 0.0, float(view.data.epochs)
    own = view.own_validations()
    lines = [Line(own[0].name if own else "", [(value.epoch, value.ap) for value in own])]
    baseline = view.baseline_ap()
    if baseline is not None:
        lines.append(Line(BASELINE_NAME, [(x, baseline) for x in limits], dashed=True))
    losses = [Line("loss", [(entry.epoch, min(entry.loss, 1.0)) for entry in view.losses])]
    return TEMPLATES.get_template("curves.html.j2").render(
        plots=[
            Markup(render_plot("Training loss: 1 - AP of each batch", losses, "epoch", limits)),
            Markup(render_plot("Validation AP: photos not trained on", lines, "epoch", limits, legend=True)),
        ]
    )


def render_lists(view: LearnView) -> str:
    """Render the lists of the chosen query, one row per epoch, as HTML; all texts are escaped."""
    if not 0 <= view.query < len(view.queries):
        return ""
    return TEMPLATES.get_template("lists.html.j2").render(
        query=view.queries[view.query], lists=view.lists(), baseline=BASELINE_NAME
    )
