"""`doap reproduce`: the tables and figures of the paper, one command each."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from doap.cli.console import choose_device, say, step_bar
from doap.errors import DoapError

if TYPE_CHECKING:
    from doap.experiments.reproduce.data import DataFolder
    from doap.experiments.reproduce.run import Outcome, Request
    from doap.experiments.reproduce.targets import Target

EXAMPLE = "Example: doap reproduce table-1 --data data -o out/paper"
LOOK_ALIKE = "look-alike"
NAMES = (
    "table-1, table-2, figure-patches, figure-batch-size, figure-hpatches, figure-oxford, figure-alignment, "
    "figure-mining, or all"
)


def reproduce(
    targets: Annotated[list[str], typer.Argument(metavar="TARGET…", help=f"{NAMES}.")],
    data: Annotated[
        str,
        typer.Option(
            envvar="DOAP_DATA",
            help="Folder of data sets, as doap data download fills it; or look-alike: sets in the official formats, "
            "made from --photos.",
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for trainings, results and the page.")],
    photos: Annotated[
        Path | None,
        typer.Option(help="For --data look-alike: overlapping photos, one folder per scene, or a frame set of them."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Try all steps in minutes: tiny sets, a few batches. The figures mean nothing."),
    ] = False,
    jobs: Annotated[
        int, typer.Option(min=1, help="Trainings at the same time; with several GPUs they use them in turn.")
    ] = 1,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="For look-alike sets: steps of each training, rounded up to epochs; 3000 by default."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value that overrides all recipes; repeatable.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say which data and trainings are needed, and do nothing.")
    ] = False,
) -> None:
    """Reproduce tables and figures of the paper: train what is not trained yet, evaluate, draw, write a page.

    An interrupted command continues when it is given again. page/index.html shows the paper's figures beside the
    measured ones, and what differs in the set-up. With all, tables and figures whose data is missing are skipped.
    """
    from doap.experiments.reproduce.equal_terms import STEPS
    from doap.experiments.reproduce.plan import find_targets
    from doap.experiments.reproduce.run import Request
    from doap.experiments.reproduce.run import reproduce as run

    folder = _data_folder(data, photos, output, quick)
    known = _targets(folder)
    # Sets made from photos are there when they are needed; a named target without its data is an error of its own.
    drawn = [
        target
        for target in find_targets(targets, known)
        if photos or "all" not in targets or not folder.explain_missing(target)
    ]
    _check_settings(drawn, settings or [], steps)
    if steps and not folder.is_look_alike:
        raise DoapError("--steps is for look-alike sets; on the official ones, recipes have the epochs of the paper")
    if steps and quick:
        raise DoapError("--steps has no effect with --quick, whose trainings take a few batches; leave out one of them")
    target = choose_device(device)
    if photos and not dry_run:
        _make_look_alike(photos, folder.folder, quick)
    request = Request(targets, known, folder, output, target, jobs, tuple(settings or ()), quick, steps or STEPS)
    if dry_run:
        _describe(request)
        return
    with step_bar() as progress:

        def report(name: str, fraction: float, done: int, total: int) -> None:
            progress(f"training {name}", done + fraction, total)

        outcome = run(request, report, progress, lambda name: say(f"evaluating {name}"))
    _write_page(request, outcome)


def _check_settings(targets: "Sequence[Target]", settings: list[str], steps: int | None) -> None:
    """Raise a DoapError if an override of the recipes would have no effect, or makes another option have none."""
    from doap.training.recipes.reading import setting_keys

    keys = setting_keys(settings)
    varied = [target.name for target in targets if target.sweeps]
    if varied and "batch_size" in keys:
        raise DoapError(f"--set batch_size: is what {varied[0]} varies; leave it out, or name the other targets")
    if steps and "epochs" in keys:
        raise DoapError("--steps has no effect with --set epochs; leave out one of them")


def _data_folder(data: str, photos: Path | None, output: Path, quick: bool) -> "DataFolder":
    """Return the folder of data sets; look-alike sets may have to be made in it."""
    from doap.datasets.build.look_alike import RECORD
    from doap.experiments.reproduce.data import DataFolder

    if data != LOOK_ALIKE:
        if photos:
            raise DoapError("--photos is for --data look-alike")
        return DataFolder(Path(data), is_look_alike=(Path(data) / RECORD).is_file())
    folder = output / f"{LOOK_ALIKE}{'-quick' if quick else ''}"
    if not photos and not (folder / RECORD).is_file():
        raise DoapError("--data look-alike: give --photos, a folder of overlapping photos with one folder per scene")
    return DataFolder(folder, is_look_alike=True)


def _make_look_alike(photos: Path, folder: Path, quick: bool) -> None:
    from doap.datasets.build.look_alike import make_look_alike
    from doap.datasets.build.settings import LookAlikeSettings

    with step_bar() as progress:
        make_look_alike(photos, folder, LookAlikeSettings.quick() if quick else LookAlikeSettings(), progress)


def _targets(data: "DataFolder") -> "dict[str, Target]":
    from doap.experiments.reproduce.targets import look_alike_targets, paper_targets

    return look_alike_targets() if data.is_look_alike else paper_targets()


def _describe(request: "Request") -> None:
    """Print the data and the trainings of each target."""
    from doap.experiments.reproduce.data import DataFolder
    from doap.experiments.reproduce.plan import find_targets, make_plan
    from doap.experiments.reproduce.run import RUNS

    # Only the run folders are of interest: recipes are not adapted to the data, which may be missing.
    unadapted = DataFolder(request.data.folder)
    for target in find_targets(request.names, request.targets):
        say(f"{target.name}: needs {', '.join(target.datasets)}")
        lacking = request.data.explain_missing(target)
        if lacking:
            say(f"  {lacking}", style="yellow")
        plan = make_plan([target], unadapted, request.folder / RUNS, request.device, request.settings, request.is_quick)
        say(f"  {plan.summary()}")


def _write_page(request: "Request", outcome: "Outcome") -> None:
    from doap.report.gather import gather
    from doap.report.page import write_report

    for line in (*outcome.skipped, *outcome.failures):
        say(line, style="yellow")
    page = write_report(gather([outcome.results]), request.folder / "page", setup=_setup_lines(request, outcome))
    say(f"results in {outcome.results}, page: {page}")


def _setup_lines(request: "Request", outcome: "Outcome") -> list[str]:
    """Return what differs from the paper in this run as a whole."""
    lines = []
    if request.is_quick:
        lines.append("Quick: tiny sets and networks trained for a few batches. These figures mean nothing.")
    elif request.data.is_look_alike:
        lines.append(
            f"The data sets in {request.data.folder} are look-alikes: made from other photos, in the official formats. "
            "Figures on them compare the measured methods with each other, not with the published figures."
        )
        length = f"Trainings take {request.equal_steps:,} steps. " if request.equal_steps else ""
        lines.append(
            f"{length}The learning rate falls linearly to 0. Each objective has the best of the same initial rates, "
            "instead of the paper's."
        )
    if request.settings:
        lines.append(f"All recipes were changed by {' '.join(request.settings)}.")
    return [*lines, *outcome.skipped, *outcome.failures]
