"""Studies: several trainings compared over several seeds, each tuned with the same effort.

The folder of a study holds one run per training ("hardnet,lr=0.5,seed=0"); study.csv, one line per run; and study.json,
the same with the recipe, data, device and versions of each run. Both files are rewritten after every run.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from doap.errors import DoapError
from doap.experiments.series import Evaluator, RunRow, Series, weights_hash
from doap.experiments.study_plan import Study, folder_name
from doap.locking import only_writer
from doap.parsing.json_files import read_json
from doap.training.recipes.reading import upgrade_recipe
from doap.training.recipes.recipe import Recipe
from doap.training.run_folder import FAILURE

ROW_KEYS = ("run", "setting", "seed")  # columns that identify a row
FINGERPRINT = "fingerprint"  # of data to evaluate on, in the parts of `evaluated_by`
OLD_COLUMNS = {"tried": "setting", "right": "correct"}  # of version 0.1


def run_study(
    study: Study,
    series: Series,
    evaluate: Evaluator,
    evaluated_by: Mapping[str, Any],
    on_row: Callable[[list[RunRow]], None] = lambda _rows: None,
) -> list[RunRow]:
    """Train and evaluate all runs of a study: all settings with the first seed, then the best with each other seed.

    Seeds are completed one after the other, so that all runs have about the same number whenever the study is stopped.
    Started again, it trains what is missing, resumes what was interrupted, and evaluates only what was not evaluated
    in the same way before.

    A training whose loss is not finite has failed; the study continues without it.

    Args:
        study: Study from `read_study`.
        series: Settings shared by the trainings.
        evaluate: Evaluation of a run; more is better for the first measure.
        evaluated_by: Everything that the measures depend on besides the model, for the record. Runs that were
            evaluated otherwise are evaluated again.
        on_row: Callback after every run, called with all rows so far: `ROW_KEYS`, then the measures; none if the
            training failed.

    Raises:
        DoapError: If the folder holds other trainings, before any is started; or if a training cannot run.
    """
    with only_writer(series.folder, inside=True):
        progress = _StudyProgress(study, series, evaluate, dict(evaluated_by), on_row)
        first_seed, *other_seeds = study.seeds
        for run, settings in study.runs.items():
            for setting in settings:
                progress.measure(run, setting, first_seed)
        for seed in other_seeds:
            for run, setting in best_settings(progress.rows).items():
                progress.measure(run, setting, seed)
    return progress.rows


def best_settings(rows: Sequence[RunRow]) -> dict[str, str]:
    """Return the best setting of each run with the first seed; runs with failed trainings only are left out.

    Args:
        rows: Rows of `run_study`; those of the first seed come first.
    """
    best: dict[str, tuple[float, str]] = {}
    for row in rows:
        value = main_measure(row)
        if row["seed"] != rows[0]["seed"] or value is None:
            continue
        if row["run"] not in best or value > best[row["run"]][0]:
            best[row["run"]] = value, row["setting"]
    return {run: setting for run, (_, setting) in best.items()}


def main_measure(row: RunRow) -> float | None:
    """Return the first measure of a row; None if the training failed."""
    return next((value for key, value in row.items() if key not in ROW_KEYS), None)


class _StudyProgress:
    """Rows measured so far."""

    def __init__(
        self,
        study: Study,
        series: Series,
        evaluate: Evaluator,
        evaluated_by: dict[str, Any],
        on_row: Callable[[list[RunRow]], None],
    ) -> None:
        self._study, self._series, self._evaluate, self._on_row = study, series, evaluate, on_row
        self._evaluated_by = evaluated_by
        self.rows: list[RunRow] = []
        self._runs: dict[str, Any] = {}
        series.check(self._all_recipes())
        self._earlier = _read_measures(series.folder / "study.json", evaluated_by)

    def _all_recipes(self) -> dict[str, Recipe]:
        return {
            folder_name(run, setting, seed): self._study.recipe(run, setting, seed)
            for run, settings in self._study.runs.items()
            for setting in settings
            for seed in self._study.seeds
        }

    def measure(self, run: str, setting: str, seed: int) -> None:
        """Train and evaluate a run, or take its earlier measures, and write the tables."""
        name, recipe = folder_name(run, setting, seed), self._study.recipe(run, setting, seed)
        row: RunRow = dict(zip(ROW_KEYS, (run, setting, seed), strict=True))
        weights = weights_hash(self._series.folder / name)
        row |= self._earlier.get(weights or "") or self._train_and_evaluate(name, recipe)
        self.rows.append(row)
        description = self._series.describe(name, recipe)
        self._runs[name] = {**description, "weights": weights_hash(self._series.folder / name)}
        content = {"evaluated_by": self._evaluated_by, "rows": self.rows, "runs": self._runs}
        self._series.write("study", self.rows, content)
        self._on_row(self.rows)

    def _train_and_evaluate(self, name: str, recipe: Recipe) -> Mapping[str, float]:
        run = self._series.folder / name
        if (run / FAILURE).exists():  # trainings are deterministic: it would fail again
            return {}
        try:
            model = self._series.train(name, recipe)
        except DoapError:
            if (run / FAILURE).exists():
                return {}
            raise
        return self._evaluate(run, model)


def upgrade_study(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of study.json with the keys of this version; files of version 0.1 had others."""
    evaluated_by = content.get("evaluated_by", content.get("judged_by", {}))
    lists = evaluated_by.get("lists", {})
    if "recipe" in lists:
        evaluated_by = {**evaluated_by, "lists": {**lists, "recipe": upgrade_recipe(lists["recipe"])}}
    rows = [{OLD_COLUMNS.get(key, key): value for key, value in row.items()} for row in content["rows"]]
    runs = {name: {**run, "recipe": upgrade_recipe(run["recipe"])} for name, run in content["runs"].items()}
    return {"evaluated_by": evaluated_by, "rows": rows, "runs": runs}


def _read_measures(file: Path, evaluated_by: dict[str, Any]) -> dict[str, RunRow]:
    """Return the measures that were evaluated in the same way before, by the SHA-256 of the weights."""
    try:
        content = upgrade_study(read_json(file))
        if not _is_same_evaluation(content["evaluated_by"], json.loads(json.dumps(evaluated_by))):
            return {}
        names = [folder_name(row["run"], row["setting"], row["seed"]) for row in content["rows"]]
        return {
            content["runs"][name]["weights"]: {key: value for key, value in row.items() if key not in ROW_KEYS}
            for name, row in zip(names, content["rows"], strict=True)
            if main_measure(row) is not None
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # missing or damaged: evaluate all again
        return {}


def _is_same_evaluation(recorded: dict[str, Any], current: dict[str, Any]) -> bool:
    """Return whether two entries `evaluated_by` are equal; fingerprints may be missing in the recorded one."""
    without = {name: _without_unrecorded(part, recorded.get(name)) for name, part in current.items()}
    return recorded == without


def _without_unrecorded(part: Any, recorded: Any) -> Any:
    if isinstance(part, dict) and isinstance(recorded, dict) and FINGERPRINT not in recorded:
        return {key: value for key, value in part.items() if key != FINGERPRINT}
    return part
