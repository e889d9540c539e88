"""How the result of each benchmark is shown: which table, and which figure."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from doap.evaluation.phototour_figure import draw_phototour
from doap.evaluation.phototour_table import phototour_table
from doap.evaluation.published import published_table
from doap.evaluation.result import Result
from doap.evaluation.romepatches_figure import draw_romepatches
from doap.evaluation.romepatches_table import romepatches_table
from doap.evaluation.table import Table
from doap.report.tidy import tidy_table


@dataclass(frozen=True)
class Shown:
    """How a benchmark is shown.

    Attributes:
        table: of a result.
        draw: the figure of a result, if it has one.
        quoted: the published figures alone; those that the table holds too are shown alone where nothing was measured.
        holds_quoted: whether the table does.
    """

    table: Callable[[Result], Table] = tidy_table
    draw: Callable[[Result, Path], None] | None = None
    quoted: Callable[[], Table] | None = None
    holds_quoted: bool = False


# One entry a benchmark; any other is shown by its scores alone.
SHOWN = {
    "phototour": Shown(phototour_table, draw_phototour, partial(phototour_table, None), holds_quoted=True),
    "hpatches": Shown(quoted=partial(published_table, "hpatches", 1)),
    "romepatches": Shown(romepatches_table, draw_romepatches, partial(romepatches_table, None), holds_quoted=True),
    "pairs": Shown(quoted=partial(published_table, "poses", 3)),
}


def shown(benchmark: str) -> Shown:
    """How to show a benchmark."""
    return SHOWN.get(benchmark, Shown())
