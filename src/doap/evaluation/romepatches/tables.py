"""Table 2 of the paper: retrieval mAP on both halves of RomePatches, measured rows beside quoted ones."""

from typing import cast

from doap.datasets.official.romepatches import HALVES
from doap.evaluation.harness.published import notes, published, size, sources
from doap.evaluation.harness.result import Result
from doap.evaluation.harness.table import Row, Table, number
from doap.evaluation.harness.training_sets import MARK, marked_name, methods_that_saw

NOTE = (
    "mAP %; more is better; b are bits. Every patch is a query; in brackets, where the data names them, the official "
    "queries alone, which rank the other patches"
)


def romepatches_table(result: Result | None) -> Table:
    """Return the table: measured rows, then quoted ones, unless the data is not the official one.

    Args:
        result: Result of `RomePatches`; None for the quoted rows alone.
    """
    is_look_alike = result is not None and bool(result.settings.get("look-alike"))
    quoted = [] if is_look_alike else published("romepatches")
    rows = measured_rows(result) if result else []
    for row in quoted:
        cells = (number(row.figures.get(half), 1) for half in HALVES)
        rows.append(Row((row.method, size(row.kind, row.dimensions), *cells), quoted=True))
    return Table(
        ("method", "size", *HALVES),
        tuple(rows),
        text_columns=2,
        note="; ".join(filter(None, (NOTE, notes(quoted), _mark_note(result)))),
        better="more",
        title="Other photos by the protocol of RomePatches" if is_look_alike else "RomePatches",
        sources=tuple(sources("romepatches")) if quoted else (),
    )


def measured_rows(result: Result) -> list[Row]:
    """Return one row per descriptor, in the order of the methods."""
    scores = {(score["descriptor"], score["half"]): score for score in result.scores}
    rows = []
    for model in result.methods:
        cells = []
        for half in HALVES:
            score = scores.get((model["name"], half), {})
            official = score.get("map official queries")
            bracket = "" if official is None else f" ({number(cast(float, official), 1)})"
            cells.append(number(cast(float | None, score.get("map")), 1) + bracket)
        rows.append(Row((marked_name(result, model["name"]), size(model["kind"], model["dimensions"]), *cells)))
    return rows


def _mark_note(result: Result | None) -> str:
    return f"{MARK} trained on the test half" if result and methods_that_saw(result) else ""
