"""Table 1 of the paper: six train/test combinations of the three scenes, measured rows beside quoted ones."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

from doap.evaluation.harness.published import notes, published, size, sources
from doap.evaluation.harness.result import Result
from doap.evaluation.harness.table import Row, Table, number
from doap.evaluation.phototour.pair_test import SCENES, order_scenes
from doap.networks import split_name

Combinations = tuple[tuple[str, str], ...]
"""Training scene and test scene of each column; the training scene is empty where none was trained on."""

SEPARATOR = " + "  # of the scenes that one model was trained on


def combine(scenes: Sequence[str]) -> Combinations:
    """Return all combinations of a training scene and another test scene, in the paper's order."""
    return tuple((train, test) for test in scenes for train in scenes if train != test)


def join_scenes(scenes: Iterable[str]) -> str:
    """Return the training scenes of a model as text, for the column "trained on"; empty if there are none."""
    return SEPARATOR.join(scenes)


COMBINATIONS = combine(SCENES)
NOTE = (
    "FPR95 %, trained on → tested on; less is better; b are bits. A descriptor that was trained on none of the scenes "
    "has one figure per test scene. The mean is given where all figures are"
)

Rates = dict[tuple[str, str], float]


def phototour_table(result: Result | None) -> Table:
    """Return the table: measured rows, then quoted ones, if the scenes are the paper's.

    Args:
        result: Result of `Phototour`; None for the quoted rows alone.
    """
    combinations = _combinations_of(result)
    columns = tuple(f"{train} →\n{test}" if train else test for train, test in combinations)
    quoted = published("phototour") if combinations == COMBINATIONS else []
    rows = (measured_rows(result) if result else []) + [
        Row(
            (
                row.method,
                size(row.kind, row.dimensions),
                *_cells(COMBINATIONS, _by_combination(row.figures), row.figures["mean"]),
            ),
            quoted=True,
        )
        for row in quoted
    ]
    return Table(
        ("method", "size", *columns, "mean"),
        tuple(rows),
        text_columns=2,
        note="; ".join(filter(None, (NOTE, notes(quoted)))),
        better="less",
        title="UBC Phototour" if quoted else "Other scenes by the protocol of UBC Phototour",
        sources=tuple(sources("phototour")) if quoted else (),
    )


def measured_rows(result: Result) -> list[Row]:
    """Return one row per method, real-valued ones first; models that differ only in the training scene share a row."""
    combinations = _combinations_of(result)
    rows = []
    for method, models in _group_models(result.methods):
        rates: Rates = {}
        for score in result.scores:
            if score["descriptor"] in [model["name"] for model in models]:
                trained_on, test = str(score["trained on"]), str(score["test"])
                rates.update(_fill(combinations, trained_on, test, cast(float, score["fpr95"])))
        mean = sum(rates.values()) / len(rates) if len(rates) == len(combinations) else None
        kind = models[0]["kind"]
        rows.append((kind, Row((method, size(kind, models[0]["dimensions"]), *_cells(combinations, rates, mean)))))
    return [row for kind, row in rows if kind == "real"] + [row for kind, row in rows if kind == "binary"]


def _group_models(models: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Group models that are one method trained on different scenes: their names differ only in the scene at the end.

    Returns:
        Name and models of each method, for prefixes with their length. A method whose name is also that of a model has
        the names of its models.
    """
    groups: dict[tuple[str, bool], list[dict[str, Any]]] = {}  # by name, and whether it is without the scene
    for model in models:
        name, scene = str(model["name"]), model["trained on"]
        stem = _without_scene(name, scene) if scene else ""
        others = groups.get((stem, True), [])
        is_same_size = all((o["kind"], o["dimensions"]) == (model["kind"], model["dimensions"]) for o in others)
        if stem and is_same_size and scene not in [other["trained on"] for other in others]:
            groups.setdefault((stem, True), []).append(model)
        else:
            groups[name, False] = [model]
    return [
        (" + ".join(str(model["name"]) for model in group) if joined and (name, False) in groups else name, group)
        for (name, joined), group in groups.items()
    ]


def _without_scene(name: str, scene: str) -> str:
    """Return the name of a model without the scene at its end, or before the length of a prefix at its end.

    Returns:
        "doap" for "doap-liberty", "doap@64" for "doap-liberty@64"; an empty string if nothing else is left or the name
        has no such end.
    """
    base, length = split_name(name)
    stem = re.sub(rf"(?:^|[-_. ]+){re.escape(scene)}$", "", base, flags=re.IGNORECASE)
    return "" if stem in ("", base) else stem + ("" if length is None else f"@{length}")


def _combinations_of(result: Result | None) -> Combinations:
    """Return the columns of a result: the paper's, or the combinations of other scenes that the result may fill."""
    if result is None:
        return COMBINATIONS
    tests = {str(score["test"]) for score in result.scores}
    trained = {scene for model in result.methods for scene in str(model["trained on"]).split(SEPARATOR) if scene}
    scenes = order_scenes(tests | trained)
    if set(scenes) <= set(SCENES):
        return COMBINATIONS
    if len(scenes) == 1:
        return (("", scenes[0]),)
    return tuple(pair for pair in combine(scenes) if pair[1] in tests)


def _fill(combinations: Combinations, train: str, test: str, rate: float) -> Rates:
    """Return the columns of a figure: those of its training scenes, or all of the test scene if there is none."""
    return {pair: rate for pair in combinations if pair[1] == test and (not train or pair[0] in train.split(SEPARATOR))}


def _by_combination(figures: dict[str, float]) -> Rates:
    rates: Rates = {}
    for name, rate in figures.items():
        train, _, test = name.rpartition("/")
        rates.update(_fill(COMBINATIONS, train, test, rate))
    return rates


def _cells(combinations: Combinations, rates: Rates, mean: float | None) -> tuple[str, ...]:
    return (*(number(rates.get(pair), 2) for pair in combinations), number(mean, 2))
