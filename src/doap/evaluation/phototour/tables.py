"""Table 1 of the paper: six train/test combinations of the three scenes, measured rows beside quoted ones."""

from typing import Any, cast

from doap.evaluation.harness.published import notes, published, size, sources
from doap.evaluation.harness.result import Result
from doap.evaluation.harness.table import Row, Table, number
from doap.evaluation.phototour.pair_test import scene_of

# Training scene and test scene, in the paper's order.
COMBINATIONS = (
    ("notredame", "liberty"),
    ("yosemite", "liberty"),
    ("liberty", "notredame"),
    ("yosemite", "notredame"),
    ("liberty", "yosemite"),
    ("notredame", "yosemite"),
)
NOTE = (
    "FPR95 %, trained on → tested on; less is better; b are bits. A descriptor that was trained on none of the scenes "
    "has one figure per test scene. The mean is given where all six figures are"
)

Rates = dict[tuple[str, str], float]


def phototour_table(result: Result | None) -> Table:
    """Return the table: measured rows, then quoted ones.

    Args:
        result: Result of `Phototour`; None for the quoted rows alone.
    """
    columns = tuple(f"{train} →\n{test}" for train, test in COMBINATIONS)
    quoted = published("phototour")
    rows = (measured_rows(result) if result else []) + [
        _row(row.method, size(row.kind, row.dimensions), _by_combination(row.figures), row.figures["mean"], True)
        for row in quoted
    ]
    return Table(
        ("method", "size", *columns, "mean"),
        tuple(rows),
        text_columns=2,
        note="; ".join(filter(None, (NOTE, notes(quoted)))),
        better="less",
        title="UBC Phototour",
        sources=tuple(sources("phototour")),
    )


def measured_rows(result: Result) -> list[Row]:
    """Return one row per method, real-valued ones first; models that differ only in the training scene share a row."""
    rows = []
    for method, models in _group_models(result.methods).items():
        rates: Rates = {}
        for score in result.scores:
            if score["descriptor"] in [model["name"] for model in models]:
                rates.update(_fill(str(score["trained on"]), str(score["test"]), cast(float, score["fpr95"])))
        mean = sum(rates.values()) / len(rates) if len(rates) == len(COMBINATIONS) else None
        kind = models[0]["kind"]
        rows.append((kind, _row(method, size(kind, models[0]["dimensions"]), rates, mean)))
    return [row for kind, row in rows if kind == "real"] + [row for kind, row in rows if kind == "binary"]


def _group_models(models: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Group models that are one method trained on different scenes: their names differ only in the scene at the end."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for model in models:
        name, scene = str(model["name"]), model["trained on"]
        stem = name[: -len(scene)].rstrip("-_. ") if scene and scene_of(name) == scene else ""
        others = groups.get(stem, [])
        is_same_size = all((o["kind"], o["dimensions"]) == (model["kind"], model["dimensions"]) for o in others)
        if stem and is_same_size and scene not in [other["trained on"] for other in others]:
            groups.setdefault(stem, []).append(model)
        else:
            groups[name] = [model]
    return groups


def _fill(train: str, test: str, rate: float) -> Rates:
    """Return the columns of a figure: its own, or all columns of the test scene if there is no training scene."""
    return {pair: rate for pair in COMBINATIONS if pair[1] == test and train in ("", pair[0])}


def _by_combination(figures: dict[str, float]) -> Rates:
    rates: Rates = {}
    for name, rate in figures.items():
        train, _, test = name.rpartition("/")
        rates.update(_fill(train, test, rate))
    return rates


def _row(method: str, length: str, rates: Rates, mean: float | None, quoted: bool = False) -> Row:
    cells = [number(rates.get(pair), 2) for pair in COMBINATIONS]
    return Row((method, length, *cells, number(mean, 2)), quoted)
