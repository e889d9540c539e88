"""Table of any result: one row per descriptor, one column per condition."""

from itertools import product
from typing import Any

import numpy as np

from doap.evaluation.harness.result import Result
from doap.evaluation.harness.table import Row, Table, number

MAX_COLUMNS = 12
SAMPLES = ("pair",)  # conditions that are always averaged over


def tidy_table(result: Result) -> Table:
    """Pivot the scores of a result.

    Conditions precede measures; the first column that holds a float is the first measure. Samples are averaged over. If
    the conditions give more columns than fit, the condition with the most values is averaged over too (the last one on
    ties), until they fit. The note of the table lists what was averaged over.

    Args:
        result: Result of any benchmark.
    """
    columns = list(dict.fromkeys(column for row in result.scores for column in row))[1:]
    first = next((n for n, column in enumerate(columns) if _holds(result, column, float)), len(columns))
    conditions, measures = columns[:first], [name for name in columns[first:] if not _holds(result, name, str)]
    values = {name: list(dict.fromkeys(row.get(name) for row in result.scores)) for name in conditions}
    pivoted = [name for name in conditions if len(values[name]) > 1 and name not in SAMPLES]
    while pivoted and len(measures) * np.prod([len(values[name]) for name in pivoted]) > MAX_COLUMNS:
        pivoted.remove(max(reversed(pivoted), key=lambda name: len(values[name])))
    cells = [
        (dict(zip(pivoted, combination, strict=True)), measure)
        for combination in product(*(values[name] for name in pivoted))
        for measure in measures
    ]
    cells = [cell for cell in cells if any(_fits(row, *cell) for row in result.scores)]
    names = list(dict.fromkeys(str(row["descriptor"]) for row in result.scores))
    rows = tuple(Row((name, *(number(_mean(result, name, *cell), 1) for cell in cells))) for name in names)
    heads = tuple("\n".join([*map(str, condition.values()), measure]) for condition, measure in cells)
    averaged = [f"{name} ({len(values[name])})" for name in conditions if name not in pivoted and len(values[name]) > 1]
    return Table(("descriptor", *heads), rows, note=f"mean over {', '.join(averaged)}" if averaged else "")


def _holds(result: Result, column: str, kind: type) -> bool:
    return any(isinstance(row.get(column), kind) for row in result.scores)


def _fits(row: dict[str, Any], condition: dict[str, Any], measure: str) -> bool:
    return row.get(measure) is not None and all(row.get(name) == value for name, value in condition.items())


def _mean(result: Result, descriptor: str, condition: dict[str, Any], measure: str) -> float | None:
    values = [
        float(row[measure] or 0)
        for row in result.scores
        if row["descriptor"] == descriptor and _fits(row, condition, measure)
    ]
    return float(np.mean(values)) if values else None
