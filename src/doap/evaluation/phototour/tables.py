"""Table 1 of the paper: six train/test combinations of the three scenes, ours measured and others' quoted."""

from typing import Any, cast

from doap.evaluation.harness.published import notes, published, size, sources
from doap.evaluation.harness.result import Result
from doap.evaluation.harness.table import Row, Table, number
from doap.evaluation.phototour.benchmark import scene_of

# What is trained on and what is tested on, in the paper's order.
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
    "has one figure a test. The mean stands where all six figures do"
)

Rates = dict[tuple[str, str], float]


def phototour_table(result: Result | None) -> Table:
    """The measured rows, then the quoted ones.

    Args:
        result: of `phototour.evaluate`; None where nothing was measured.
    """
    columns = tuple(f"{train} →\n{test}" for train, test in COMBINATIONS)
    quoted = published("phototour")
    rows = (measured_rows(result) if result else []) + [
        _row(row.method, size(row.kind, row.dimensions), _by_combination(row.figures), row.figures["mean"], True)
        for row in quoted
    ]
    said = "; ".join(filter(None, (NOTE, notes(quoted))))
    return Table(
        ("method", "size", *columns, "mean"),
        tuple(rows),
        words=2,
        note=said,
        better="less",
        title="UBC Phototour",
        sources=tuple(sources("phototour")),
    )


def measured_rows(result: Result) -> list[Row]:
    """A row a method, real-valued ones first: the models that are one method trained on different scenes share it."""
    rows = []
    for method, models in _methods(result.methods).items():
        rates: Rates = {}
        for score in result.scores:
            if score["descriptor"] in [model["name"] for model in models]:
                rates.update(_fill(str(score["trained on"]), str(score["test"]), cast(float, score["fpr95"])))
        mean = sum(rates.values()) / len(rates) if len(rates) == len(COMBINATIONS) else None
        rows.append((models[0]["kind"], _row(method, size(models[0]["kind"], models[0]["dimensions"]), rates, mean)))
    return [row for kind in ("real", "binary") for of_kind, row in rows if of_kind == kind]


def _methods(methods: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The models of each method: those that differ in the scene alone, which ends their names."""
    found: dict[str, list[dict[str, Any]]] = {}
    for model in methods:
        name, scene = str(model["name"]), model["trained on"]
        stem = name[: -len(scene)].rstrip("-_. ") if scene and scene_of(name) == scene else ""
        others = found.get(stem, [])
        alike = all((o["kind"], o["dimensions"]) == (model["kind"], model["dimensions"]) for o in others)
        if stem and alike and scene not in [other["trained on"] for other in others]:
            found.setdefault(stem, []).append(model)
        else:
            found[name] = [model]
    return found


def _fill(train: str, test: str, rate: float) -> Rates:
    """Where a figure stands: in its own column or, without a training scene, in all columns of its test."""
    return {pair: rate for pair in COMBINATIONS if pair[1] == test and train in ("", pair[0])}


def _by_combination(figures: dict[str, float]) -> Rates:
    rates: Rates = {}
    for place, rate in figures.items():
        train, _, test = place.rpartition("/")
        rates.update(_fill(train, test, rate))
    return rates


def _row(method: str, length: str, rates: Rates, mean: float | None, quoted: bool = False) -> Row:
    cells = [number(rates.get(pair), 2) for pair in COMBINATIONS]
    return Row((method, length, *cells, number(mean, 2)), quoted)
