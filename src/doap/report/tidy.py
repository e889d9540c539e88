"""Any result as a table: a row a descriptor, a column a condition, what does not fit averaged and said so."""

from itertools import product
from typing import Any, cast

import numpy as np

from doap.evaluation.harness.result import Result
from doap.evaluation.harness.table import Row, Table, number

MOST_COLUMNS = 12
SAMPLES = ("pair",)  # of which there are many to average over, rather than to compare


def tidy_table(result: Result) -> Table:
    """Pivot the scores of a result.

    Conditions stand before what was measured: the first column that holds a fraction begins the latter. Samples are
    averaged over. Where the conditions make more columns than a page holds, so is the one with the most values (the
    last of several), and so on.

    Args:
        result: of any benchmark.
    """
    columns = list(dict.fromkeys(column for row in result.scores for column in row))[1:]
    begin = next((n for n, column in enumerate(columns) if _holds(result, column, float)), len(columns))
    conditions, measured = columns[:begin], [name for name in columns[begin:] if not _holds(result, name, str)]
    values = {name: list(dict.fromkeys(row.get(name) for row in result.scores)) for name in conditions}
    kept = [name for name in conditions if len(values[name]) > 1 and name not in SAMPLES]
    while kept and len(measured) * np.prod([len(values[name]) for name in kept]) > MOST_COLUMNS:
        kept.remove(max(reversed(kept), key=lambda name: len(values[name])))
    places = [
        (dict(zip(kept, chosen, strict=True)), what)
        for chosen in product(*(values[name] for name in kept))
        for what in measured
    ]
    places = [place for place in places if any(_fits(row, *place) for row in result.scores)]
    names = list(dict.fromkeys(str(row["descriptor"]) for row in result.scores))
    rows = tuple(Row((name, *(number(_mean(result, name, *place), 1) for place in places))) for name in names)
    heads = tuple("\n".join([*map(str, chosen.values()), what]) for chosen, what in places)
    averaged = [f"{name} ({len(values[name])})" for name in conditions if name not in kept and len(values[name]) > 1]
    return Table(("descriptor", *heads), rows, note=f"mean over {', '.join(averaged)}" if averaged else "")


def _holds(result: Result, column: str, kind: type) -> bool:
    return any(isinstance(row.get(column), kind) for row in result.scores)


def _fits(row: dict[str, Any], chosen: dict[str, Any], what: str) -> bool:
    return row.get(what) is not None and all(row.get(name) == value for name, value in chosen.items())


def _mean(result: Result, descriptor: str, chosen: dict[str, Any], what: str) -> float | None:
    own = [row for row in result.scores if row["descriptor"] == descriptor and _fits(row, chosen, what)]
    return float(np.mean([cast(float, row[what]) for row in own])) if own else None
