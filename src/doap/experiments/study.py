"""Studies: which of several trainings is the best, over several seeds, each tuned as much as the others.

The folder of a study holds a run for each training, "hardnet,lr=0.5,seed=0" and so on; study.csv, a line a run; and
study.json: the same, with the recipe, data, device and versions of each run. Both grow with every run that is done.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from doap.errors import DoapError
from doap.experiments.series import Judge, Row, Series
from doap.experiments.study_plan import Study, folder_name
from doap.networks.card import read_card
from doap.training.recipe import Recipe
from doap.training.run_folder import FAILURE, WEIGHTS, is_complete

KEYS = ("run", "tried", "seed")  # what tells the rows apart


def run_study(
    study: Study,
    series: Series,
    judge: Judge,
    judged_by: Mapping[str, Any],
    done: Callable[[list[Row]], None] = lambda _rows: None,
) -> list[Row]:
    """Train and judge all that a study compares: first what is tuned, of every run; then one seed more at a time.

    Stopped at any time, all runs have had about as many seeds. Started again, it trains what is missing, goes on with
    what was stopped, and judges what was not judged yet in the same way.

    A training whose loss stops being a number has lost, and the study goes on: a rate that is too high is an answer.

    Args:
        study: from `read_study`.
        series: what the trainings share, and where they are.
        judge: what to measure of each training; more is better of the first.
        judged_by: what the judge's numbers hang on, for the record: what was judged otherwise is judged again.
        done: called after every training with all rows so far: `KEYS`, then what was measured, None where it failed.

    Raises:
        DoapError: one line; if the folder holds other trainings, before any is begun.
    """
    work = _Work(study, series, judge, dict(judged_by), done)
    first, *others = study.seeds
    for run, tries in study.runs.items():
        for tried in tries:
            work.measure(run, tried, first)
    for seed in others:
        for run, tried in best_tries(work.rows).items():
            work.measure(run, tried, seed)
    return work.rows


def best_tries(rows: Sequence[Row]) -> dict[str, str]:
    """Of each run, what did best with its first seed; runs all of whose tries failed are left out.

    Args:
        rows: of `run_study`; the first seed's come first.
    """
    best: dict[str, Row] = {}
    firsts = [row for row in rows if row["seed"] == rows[0]["seed"] and lead(row) is not None]
    for row in firsts:
        if row["run"] not in best or lead(row) > lead(best[row["run"]]):  # type: ignore[operator]  # none is None
            best[row["run"]] = row
    return {run: row["tried"] for run, row in best.items()}


def lead(row: Row) -> float | None:
    """What counts: the first that was measured; None of a training that failed."""
    return next((value for key, value in row.items() if key not in KEYS), None)


class _Work:
    """The rows so far, and how one more comes about."""

    def __init__(
        self, study: Study, series: Series, judge: Judge, judged_by: dict[str, Any], done: Callable[[list[Row]], None]
    ) -> None:
        self._study, self._series, self._judge, self._judged_by, self._done = study, series, judge, judged_by, done
        self.rows: list[Row] = []
        self._runs: dict[str, Any] = {}
        series.check(self._planned())
        self._earlier = _read_earlier(series.folder / "study.json", judged_by)

    def _planned(self) -> dict[str, Recipe]:
        """All trainings that there can be."""
        return {
            folder_name(run, tried, seed): self._study.recipe(run, tried, seed)
            for run, tries in self._study.runs.items()
            for tried in tries
            for seed in self._study.seeds
        }

    def measure(self, run: str, tried: str, seed: int) -> None:
        """Train and judge, or find what was measured before."""
        name, recipe = folder_name(run, tried, seed), self._study.recipe(run, tried, seed)
        row: Row = dict(zip(KEYS, (run, tried, seed), strict=True))
        weights = _weights_of(self._series.folder / name)
        if weights and (found := self._earlier.get(weights)):
            row |= found
        else:
            row |= self._measured(name, recipe)
        self.rows.append(row)
        described = self._series.describe(name, recipe)
        self._runs[name] = {**described, "weights": _weights_of(self._series.folder / name)}
        content = {"judged_by": self._judged_by, "rows": self.rows, "runs": self._runs}
        self._series.write("study", self.rows, content)
        self._done(self.rows)

    def _measured(self, name: str, recipe: Recipe) -> Mapping[str, float]:
        run = self._series.folder / name
        if (run / FAILURE).exists():  # the same bits would fail again
            return {}
        try:
            model = self._series.train(name, recipe)
        except DoapError:
            if (run / FAILURE).exists():
                return {}
            raise
        return self._judge(run, model)


def _weights_of(run: Path) -> str | None:
    """What names the weights of a run, if it is complete."""
    return read_card(run / WEIGHTS).sha256 if is_complete(run) else None


def _read_earlier(file: Path, judged_by: dict[str, Any]) -> dict[str, Row]:
    """What was measured before and in the same way, by the weights."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["judged_by"] != json.loads(json.dumps(judged_by)):
            return {}
        names = [folder_name(row["run"], row["tried"], row["seed"]) for row in content["rows"]]
        return {
            content["runs"][name]["weights"]: {key: value for key, value in row.items() if key not in KEYS}
            for name, row in zip(names, content["rows"], strict=True)
            if lead(row) is not None
        }
    except (OSError, ValueError, KeyError, TypeError):  # none, or not of this version: all is judged again
        return {}
