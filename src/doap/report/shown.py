"""How the result of each benchmark is shown: which table, and which figure."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from doap.evaluation.harness.published import published_table
from doap.evaluation.harness.result import Result
from doap.evaluation.harness.table import Table
from doap.evaluation.hpatches.figure import draw_hpatches
from doap.evaluation.hpatches.tables import hpatches_tables
from doap.evaluation.image_pairs.figure import draw_pairs
from doap.evaluation.image_pairs.oxford_figure import draw_oxford
from doap.evaluation.image_pairs.tables import oxford_tables, pairs_tables
from doap.evaluation.phototour.figure import draw_phototour
from doap.evaluation.phototour.tables import phototour_table
from doap.evaluation.romepatches.figure import draw_romepatches
from doap.evaluation.romepatches.tables import romepatches_table
from doap.report.tidy import tidy_table


def _alone(table: Callable[[Result], Table]) -> Callable[[Result], list[Table]]:
    """For a benchmark of one table."""
    return lambda result: [table(result)]


TIDY = _alone(tidy_table)


@dataclass(frozen=True)
class Shown:
    """How a benchmark is shown.

    Attributes:
        tables: of a result.
        draw: the figure of a result, if it has one.
        quoted: the published figures alone; those that the tables hold too are shown alone where nothing was measured.
        holds_quoted: whether the tables do.
    """

    tables: Callable[[Result], list[Table]] = TIDY
    draw: Callable[[Result, Path], None] | None = None
    quoted: Callable[[], Table] | None = None
    holds_quoted: bool = False


# One entry a benchmark; any other is shown by its scores alone.
SHOWN = {
    "phototour": Shown(_alone(phototour_table), draw_phototour, partial(phototour_table, None), holds_quoted=True),
    "hpatches": Shown(hpatches_tables, draw_hpatches, partial(published_table, "hpatches", 1)),
    "romepatches": Shown(
        _alone(romepatches_table), draw_romepatches, partial(romepatches_table, None), holds_quoted=True
    ),
    "oxford": Shown(oxford_tables, draw_oxford),
    "pairs": Shown(pairs_tables, draw_pairs),
}


def shown(benchmark: str) -> Shown:
    """How to show a benchmark."""
    return SHOWN.get(benchmark, Shown())
