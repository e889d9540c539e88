"""What came out of a study: of each run the mean over its seeds, how sure it is, and which is the best."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student

from doap.evaluation.harness.table import Row, Table, number
from doap.evaluation.metrics.significance import LEVEL


@dataclass(frozen=True)
class Standing:
    """A run of a study.

    Attributes:
        run: its name.
        tried: what was chosen for it, "lr=0.5" or so.
        values: by what was measured, one a seed.
    """

    run: str
    tried: str
    values: dict[str, tuple[float, ...]]

    def mean(self, measure: str) -> float:
        """Over the seeds."""
        return float(np.mean(self.values[measure]))

    def reach(self, measure: str) -> float | None:
        """How far the 95 % interval of the mean goes to either side, by Student's t; None for one seed."""
        values = self.values[measure]
        if len(values) < 2:
            return None
        error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
        return float(student.ppf(0.5 + LEVEL / 200, len(values) - 1)) * error


def standings(rows: Sequence[dict[str, Any]], chosen: dict[str, str], measures: Sequence[str]) -> list[Standing]:
    """The runs of a study, best mean of the first measure first.

    Args:
        rows: a training each: "run", "tried", "seed", and what was measured unless it failed.
        chosen: of each run, what was chosen of what was tried.
        measures: what was measured.
    """
    found = []
    for run, tried in chosen.items():
        own = [row for row in rows if (row["run"], row["tried"]) == (run, tried) and measures[0] in row]
        found.append(Standing(run, tried, {name: tuple(float(row[name]) for row in own) for name in measures}))
    return sorted(found, key=lambda standing: -standing.mean(measures[0]))


def label(measure: str) -> str:
    """How a measure is called over a column or under an axis."""
    return "right matches %" if measure == "right" else f"AP %, {measure}"


def study_table(found: Sequence[Standing], lost: Sequence[str] = ()) -> Table:
    """Means over seeds, ± half the interval, the best of each column starred.

    Args:
        found: from `standings`.
        lost: runs all of whose trainings failed.
    """
    measures = list(found[0].values)
    best = {name: max(standing.mean(name) for standing in found) for name in measures}
    rows = [
        Row((each.run, each.tried, str(len(each.values[measures[0]])), *(_cell(each, m, best[m]) for m in measures)))
        for each in found
    ]
    rows += [Row((run, "failed", "0", *("-" for _ in measures))) for run in lost]
    return Table(
        ("run", "chosen", "seeds", *map(label, measures)),
        tuple(rows),
        text_columns=2,
        note=f"* the best of a column; ± half the {LEVEL} % interval of the mean over seeds, by Student's t",
    )


def _cell(standing: Standing, measure: str, best: float) -> str:
    mean, reach = standing.mean(measure), standing.reach(measure)
    star = "*" if mean == best else ""
    return f"{number(mean, 2)}{'' if reach is None else f' ± {reach:.2f}'}{star}"
