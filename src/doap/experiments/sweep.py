"""Sweeps: one recipe trained for several values of one of its keys (paper, "Influence of training batch size").

The folder of a sweep holds one run per value ("batch_size=256"); sweep.csv, one line per run, the metric in percent;
and sweep.json, the same in the unit of the evaluation, with the metric, the tests, and the recipe, data, device,
versions and hash of the weights of each run. Both files are rewritten after every run. `sweep_metrics` lists what runs
can be measured by.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from doap.errors import DoapError
from doap.experiments.series import Evaluator, RunRow, Series, folder_part, weights_hash
from doap.locking import only_writer
from doap.networks.descriptor import Descriptor
from doap.networks.registry import load
from doap.parsing.json_files import read_json
from doap.parsing.yaml_files import parse_yaml
from doap.training.log import read_validation
from doap.training.recipes.reading import check_renamed, read_recipe
from doap.training.recipes.recipe import Recipe
from doap.training.run_folder import BEST
from doap.training.validation import CommonValidation

EVALUATED_BY = ("metric", "tests", "split")  # entries of sweep.json that decide how a run is measured
FINGERPRINTS = "fingerprints"  # entry of sweep.json: those of the tests
SPLIT_KEYS = ("seed", "val_fraction")  # recipe keys that decide which scenes are for validation


@dataclass(frozen=True)
class Sweep:
    """Runs of a sweep.

    Attributes:
        key: Recipe key that varies.
        recipes: Recipe of each run, by run name, in order.
    """

    key: str
    recipes: dict[str, Recipe]

    def value(self, name: str) -> Any:
        """Return the value of the key in a run."""
        return getattr(self.recipes[name], self.key)


def plan_sweep(recipe: str | Path, over: str, settings: list[str] | None = None) -> Sweep:
    """Return the runs of a sweep.

    Args:
        recipe: Name or path of the recipe.
        over: The key and its values, the items of a YAML list, such as "batch_size=256,512,1024".
        settings: `key=value` texts shared by all runs.

    Raises:
        DoapError: If the text, the key or a value is invalid; one line that names it.

    Example:
        >>> list(plan_sweep("phototour-real", "batch_size=256,4096").recipes)
        ['batch_size=256', 'batch_size=4096']
    """
    key, values = _parse_over(over)
    check_renamed([key], f"--over {over}")
    recipes: dict[str, Recipe] = {}
    for value in values:
        variant = read_recipe(recipe, settings, {key: value})
        name = folder_part(format_setting(key, getattr(variant, key)))
        if name in recipes:
            raise DoapError(f"--over {over}: {name} is repeated")
        recipes[name] = variant
    return Sweep(key, recipes)


def _parse_over(over: str) -> tuple[str, list[Any]]:
    """Split "key=value,value" into the key and the values."""
    key, _, text = over.partition("=")
    usage = f"--over {over}: write it as key=value,value, for example batch_size=256,512,1024"
    try:
        values = parse_yaml(f"[{text}\n]")
    except ValueError as error:
        raise DoapError(f"{usage} (not valid YAML: {error})") from error
    if not key.strip() or not values or text.rstrip().endswith(","):
        raise DoapError(usage)
    return key.strip(), values


def format_setting(key: str, value: object) -> str:
    """Return a key and its value as text.

    Example:
        >>> format_setting("bins", None), format_setting("schedule", "linear")
        ('bins=null', 'schedule=linear')
    """
    return f"{key}={format_value(value)}"


def format_value(value: object) -> str:
    """Return the value of a recipe key as it is written in a recipe.

    Example:
        >>> format_value(None), format_value(True), format_value("linear"), format_value([8, 16])
        ('null', 'true', 'linear', '[8, 16]')
    """
    return value if isinstance(value, str) else json.dumps(value)


def check_same_scenes(sweep: Sweep) -> None:
    """Check that all runs of a sweep have the same validation scenes.

    Raises:
        DoapError: If the key that varies decides which scenes they are.
    """
    if sweep.key in SPLIT_KEYS:
        raise DoapError(
            f"--over {sweep.key}: the validation scenes of the runs differ, and their AP cannot be compared; "
            "give --test OFFICIAL_FOLDER"
        )


def run_sweep(
    sweep: Sweep,
    series: Series,
    evaluate: Evaluator,
    record: Mapping[str, Any] | None = None,
    on_row: Callable[[list[RunRow]], None] = lambda _rows: None,
) -> list[RunRow]:
    """Train and evaluate every run of a sweep.

    Complete runs are not trained again, nor evaluated again if sweep.json holds their measures on the same tests, and
    interrupted ones are resumed: a sweep that was killed and started again ends with the same numbers.

    Args:
        sweep: Sweep from `plan_sweep`.
        series: Settings shared by the trainings.
        evaluate: Evaluation of a run.
        record: Further entries of sweep.json: recipe, settings, tests, and metric and split of the evaluation;
            fingerprints of the tests, by `fingerprint_folder`.
        on_row: Callback after every run, called with all rows so far: the value of the key, then the measures.

    Raises:
        DoapError: If the folder holds other trainings, before any is started; or if a training fails.
    """
    with only_writer(series.folder, inside=True):
        series.check(sweep.recipes)
        earlier = _read_measures(series.folder / "sweep.json", sweep.key, record or {})
        rows: list[RunRow] = []
        runs: dict[str, Any] = {}
        for name, recipe in sweep.recipes.items():
            run = series.folder / name
            measures = earlier.get(weights_hash(run) or "") or evaluate(run, series.train(name, recipe))
            rows.append({sweep.key: sweep.value(name), **measures})
            runs[name] = {**series.describe(name, recipe), "weights": weights_hash(run)}
            content = {"over": sweep.key, **(record or {}), "rows": rows, "runs": runs}
            series.write("sweep", _table_rows(rows, sweep.key, (record or {}).get("metric", {})), content)
            on_row(rows)
    return rows


def _table_rows(rows: Sequence[RunRow], key: str, metric: Mapping[str, Any]) -> list[RunRow]:
    """Return rows with values as in recipes, and the metric, as recorded in sweep.json, in the unit of its label."""
    column, factor = metric.get("column"), metric.get("factor", 1)
    return [
        {
            name: format_value(value) if name == key else _scale(value, factor) if name == column else value
            for name, value in row.items()
        }
        for row in rows
    ]


def _scale(value: float, factor: float) -> float:
    return value if factor == 1 else round(factor * value, 6)


def _read_measures(file: Path, key: str, record: Mapping[str, Any]) -> dict[str, RunRow]:
    """Return what was measured on the same tests before, by the SHA-256 of the weights."""
    if not record.get("tests"):
        return {}
    try:
        content = read_json(file)
        if any(content[name] != record.get(name) for name in EVALUATED_BY):
            return {}
        recorded = content.get(FINGERPRINTS)  # earlier versions did not record them
        if recorded is not None and recorded != record.get(FINGERPRINTS):
            return {}
        return {
            run["weights"]: {name: value for name, value in row.items() if name != key}
            for run, row in zip(content["runs"].values(), content["rows"], strict=True)
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # missing, damaged or of an earlier version
        return {}


def evaluate_on_val(sweep: Sweep, series: Series) -> Evaluator:
    """Return an evaluator by exact AP on the validation scenes of a run: that of its best weights, and their epoch.

    A run validates itself on batches sampled by its own recipe. For comparison, all runs are evaluated on batches
    sampled by the recipe of the first.
    """
    first = next(iter(sweep.recipes.values()))

    def evaluate(run: Path, _last: Descriptor) -> dict[str, float]:
        validated = read_validation(run)
        if not validated:
            raise DoapError(f"{run}: has no validation; set val_fraction, for example val_fraction=0.1")
        epoch = max(validated, key=lambda row: (row[1], -row[0]))[0]
        _, data = series.cache.split(series.data, sweep.recipes[run.name])
        validation = CommonValidation(data, first, series.device, series.cache)
        return {"ap": validation.average_precision(load(run / BEST, series.device, fast=False)), "epoch": epoch}

    return evaluate
