"""Result of a study: mean of each run over its seeds, with a confidence interval."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from doap.evaluation.harness.table import Row, Table, number
from doap.evaluation.metrics.significance import LEVEL
from doap.experiments.series import RunRow
from doap.experiments.study import ROW_KEYS, best_settings, main_measure


@dataclass(frozen=True)
class RunSummary:
    """Measures of a run of a study.

    Attributes:
        run: Name of the run.
        setting: Setting selected by tuning, such as "lr=0.5".
        values: Values of each measure, one per seed.
    """

    run: str
    setting: str
    values: dict[str, tuple[float, ...]]

    def mean(self, measure: str) -> float:
        """Return the mean over the seeds."""
        return float(np.mean(self.values[measure]))

    def half_interval(self, measure: str) -> float | None:
        """Return half the width of the 95 % interval of the mean, by Student's t; None for one seed."""
        values = self.values[measure]
        if len(values) < 2:
            return None
        error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
        return float(student.ppf(0.5 + LEVEL / 200, len(values) - 1)) * error


def summarise_runs(rows: Sequence[RunRow]) -> list[RunSummary]:
    """Return the runs of a study with at least one successful training, best mean of the first measure first.

    Args:
        rows: Rows of `run_study`, one per training; a failed training has no measures.
    """
    measured = next((row for row in rows if main_measure(row) is not None), {})
    measures = [name for name in measured if name not in ROW_KEYS]
    summaries = []
    for run, setting in best_settings(rows).items():
        own = [row for row in rows if (row["run"], row["setting"]) == (run, setting) and measures[0] in row]
        values = {name: tuple(float(row[name]) for row in own) for name in measures}
        summaries.append(RunSummary(run, setting, values))
    return sorted(summaries, key=lambda summary: -summary.mean(measures[0]))


def measure_label(measure: str) -> str:
    """Return the label of a measure for columns and axes."""
    return "correct matches %" if measure == "correct" else f"AP %, {measure}"


def study_table(summaries: Sequence[RunSummary], failed: Sequence[str] = ()) -> Table:
    """Return means over seeds, ± half the interval, with the best of each column starred.

    Args:
        summaries: From `summarise_runs`.
        failed: Runs whose trainings all failed.
    """
    measures = list(summaries[0].values)
    best = {name: max(summary.mean(name) for summary in summaries) for name in measures}
    rows = []
    for summary in summaries:
        seeds = len(summary.values[measures[0]])
        cells = (_format_mean(summary, name, best[name]) for name in measures)
        rows.append(Row((summary.run, summary.setting, str(seeds), *cells)))
    rows += [Row((run, "failed", "0", *("-" for _ in measures))) for run in failed]
    return Table(
        ("run", "setting", "seeds", *map(measure_label, measures)),
        tuple(rows),
        text_columns=2,
        note=f"* the best of a column; ± half the {LEVEL} % interval of the mean over seeds, by Student's t",
    )


def _format_mean(summary: RunSummary, measure: str, best: float) -> str:
    mean, half = summary.mean(measure), summary.half_interval(measure)
    star = "*" if mean == best else ""
    return f"{number(mean, 2)}{'' if half is None else f' ± {half:.2f}'}{star}"
