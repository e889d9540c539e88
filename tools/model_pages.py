"""Writes docs/models.md from the cards of the shipped models and from the results in docs/results.

    python docs/models.py        # after shipping a model, or measuring again

Draws docs/images/extents.png too, if extents were measured. A test says when the page is not what they give.
"""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

import doap
from doap.evaluation.harness.cards import card_facts, models_table
from doap.evaluation.harness.result import Result, read_result
from doap.evaluation.harness.table import Row, Table, number
from doap.evaluation.image_pairs.tables import sequence_table
from doap.files import write_figure
from doap.networks.registry import Card, find_weights, read_card
from result_tables import RESULTS, hpatches_summary, markdown

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "models.md"
PICTURE = DOCS / "images" / "extents.png"
EXTENTS = RESULTS / "extents.json"
BESIDE = ("rootsift", "sift")  # what the models are shown beside

# The results that models are looked up in, and which of their tables.
JUDGED: dict[str, tuple[str, Callable[[Result], Table]]] = {
    "oxford-harris-affine": ("Oxford, Harris-Affine frames, all cut at extent 3", sequence_table),
    "oxford-dog": ("Oxford, DoG frames, all cut at extent 12", sequence_table),
    "oxford-dog-17": ("Oxford, DoG frames, all cut at extent 17", sequence_table),
    "hpatches": ("HPatches, folders made of image sequences", lambda result: hpatches_summary(result)[0]),
    "i_contruction": ("HPatches, the official patches of i_contruction", lambda result: hpatches_summary(result)[0]),
}

INTRODUCTION = """# Models

<!-- written by python docs/models.py; change that instead -->

```
doap models              # this table
doap models NAME         # the card of a model: data and their licences, recipe, command, figures, limits
doap match a.jpg b.jpg --model NAME
```

They come with the package, and `doap.load("NAME")` needs no network. A name says what it is: `st` has a Spatial
Transformer, `tiny` is the small network, a number is of dimensions and one with `b` of bits; `demo` models are
demonstrations, from `doap demo`. Licence of the weights: Apache-2.0."""

ABOUT_EXTENTS = """## How much a patch should show

A patch reaches `extent` scales of its frame to either side. The best is another for each detector, so a card has one
for each detector that was tried, and the extent of the training for all others. `doap.detect_and_describe`,
`doap match`, `doap describe` and `--extent own` of the benchmarks use it."""

JUDGED_BY = "## PairsScore\n\nThe rules, and all other descriptors, are in [evaluation.md](evaluation.md)."


def shipped() -> dict[str, Card]:
    """The cards of all models that ship."""
    return {name: read_card(find_weights(name)) for name in doap.list_models()}


def page() -> str:
    """The text of the page."""
    cards = shipped()
    names = list(cards)
    measured = read_result(EXTENTS) if EXTENTS.exists() else None
    parts = [
        INTRODUCTION,
        markdown(models_table(names)),
        *([ABOUT_EXTENTS, *extents(measured, cards)] if measured else []),
        *judged(names),
        "## One by one",
        *(section(name, card) for name, card in cards.items()),
        *photos(cards),
    ]
    return "\n\n".join(parts) + "\n"


def _commands(keypoints: int) -> str:
    """How photos become the sets that models are trained on, and the pairs that their extents are chosen by."""
    lines = (
        "doap data build photos -o sets/photos --frames",
        "doap data split sets/photos --share 0.125 -o halves    # halves/train is what cards call sets/train",
        "doap data pairs halves/aside -o pairs/aside",
        f"python tools/extents.py --pairs pairs/aside -o docs/results/extents.json --keypoints {keypoints}",
    )
    return "\n".join(("```", *lines, "```"))


def extents(result: Result, cards: dict[str, Card]) -> list[str]:
    """AP by extent: in words, as a figure, and a table a detector, the best of each model in bold."""
    for model in result.methods:
        if model["name"] not in cards or cards[model["name"]].sha256 != model["sha256"]:
            raise SystemExit(f"{EXTENTS}: is of other weights of {model['name']}; run tools/extents.py again")
    settings = result.settings
    grid = settings["extents"]
    parts = [
        f"Mean AP in percent over {settings['pairs']} image pairs with known homographies. Their scenes were set aside "
        "for such choices: nothing was trained on them, and nothing is tested on them. Where nothing stands, the best "
        "lay elsewhere and nothing was measured.",
        _commands(settings["keypoints"]),
        f"![AP by extent](images/{PICTURE.name})",
    ]
    for detector, curves in by_detector(result).items():
        rows = []
        for name, curve in curves.items():
            shown = {extent: number(value, 1) for extent, value in curve.items()}
            highest = max(curve, key=curve.__getitem__)
            shown[highest] = f"**{shown[highest]}**"
            rows.append(Row((name, *(shown.get(extent, "") for extent in grid))))
        parts.append(markdown(Table((f"{detector}, extent", *(f"{extent:g}" for extent in grid)), tuple(rows))))
    return parts


def by_detector(result: Result) -> dict[str, dict[str, dict[float, float]]]:
    """AP at each extent that was measured, ascending, by detector and model."""
    curves: dict[str, dict[str, dict[float, float]]] = {}
    for row in sorted(result.scores, key=lambda row: float(row["extent"] or 0)):
        of_detector = curves.setdefault(str(row["detector"]), {})
        of_detector.setdefault(str(row["descriptor"]), {})[float(row["extent"] or 0)] = float(row["ap"] or 0)
    names = [model["name"] for model in result.methods]
    return {detector: {name: of[name] for name in names if name in of} for detector, of in curves.items()}


def judged(names: list[str]) -> list[str]:
    """The rows of the models in the results of benchmarks; nothing where none was judged."""
    parts = []
    for file, (title, table) in JUDGED.items():
        found = table(read_result(RESULTS / f"{file}.json"))
        rows = tuple(row for row in found.rows if row.cells[0] in (*names, *BESIDE))
        if any(row.cells[0] in names for row in rows):
            parts += [f"**{title}**", markdown(Table(found.columns, rows, note=found.note))]
    return [JUDGED_BY, *parts] if parts else []


def section(name: str, card: Card) -> str:
    """What the card of a model says, its photos summed up."""
    facts = card_facts(name)
    if card.origin.sources:
        count = sum(source.photos for source in card.origin.sources)
        facts["photos"] = [f"{count:,} of {len(card.origin.sources)} sources: see [Photos](#photos)"]
    for heading in ("recipe", "command"):
        facts[heading] = [f"`{line}`" for line in facts.get(heading, [])]
    lines = [f"- {heading}: {'; '.join(lines)}" for heading, lines in facts.items() if lines]
    return "\n".join([f"### {name}", "", f"[Its card](../src/doap/weights/{name}.json).", "", *lines])


def photos(cards: dict[str, Card]) -> list[str]:
    """Where the photos come from: a table for all models that were trained on the same."""
    known = [(name, card.origin.sources) for name, card in cards.items() if card.origin.sources]
    parts = []
    while known:
        _, sources = known[0]
        names = ", ".join(f"`{name}`" for name, own in known if own == sources)
        known = [(name, own) for name, own in known if own != sources]
        rows = tuple(Row((each.source, each.licence, f"{each.photos:,}")) for each in sources)
        total = sum(each.photos for each in sources)
        parts += [
            f"{names}: {total:,} photos. The licence is what their source says of them; no photo comes with doap.",
            markdown(Table(("source", "licence", "photos"), rows, words=2)),
        ]
    return ["## Photos", *parts] if parts else []


def draw_extents(result: Result, cards: dict[str, Card], path: Path) -> None:
    """AP against extent, a panel a detector and a line a model, dashed for bits; the best is marked."""
    curves = by_detector(result)
    grid = result.settings["extents"]
    colours = {model["name"]: f"C{place}" for place, model in enumerate(result.methods)}  # the same in all panels
    figure = Figure(figsize=(5.2 * len(curves), 4.4), layout="constrained")
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for axes, (detector, models) in zip(panels, curves.items(), strict=True):
        for name, curve in models.items():
            style = "--" if cards[name].kind == "binary" else "-"
            points = list(curve), list(curve.values())
            axes.plot(*points, style, color=colours[name], linewidth=1.6, marker=".", label=name)
            highest = max(curve, key=curve.__getitem__)
            axes.plot(highest, curve[highest], "o", color=colours[name], markersize=8)
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(grid, [f"{extent:g}" for extent in grid])
        axes.set_title(f"{detector} frames", fontsize=11)
        axes.set_xlabel("extent: half a patch's side in scales of its frame")
        axes.set_ylabel("AP % on validation pairs")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    write_figure(figure, path, dpi=130)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    if EXTENTS.exists():
        draw_extents(read_result(EXTENTS), shipped(), PICTURE)
