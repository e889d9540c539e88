"""Sweeps: one recipe trained once for each value of one of its keys (paper, "Influence of training batch size").

The folder of a sweep holds a run for each value, batch_size=256 and so on; sweep.csv, a line a run; and sweep.json:
the same, with the recipe, data, device and versions of each run. Both grow with every run that is done.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from doap.errors import DoapError
from doap.experiments.series import Judge, Row, Series
from doap.networks.descriptor import Descriptor
from doap.networks.registry import load
from doap.training.log import read_validation
from doap.training.recipe import Recipe, read_recipe
from doap.training.run_folder import BEST
from doap.training.validation import CommonLists


@dataclass(frozen=True)
class Sweep:
    """What is trained: the key, and the recipe of each run by the run's name, in order."""

    key: str
    recipes: dict[str, Recipe]

    def value(self, name: str) -> Any:
        """The value of the key in a run."""
        return getattr(self.recipes[name], self.key)


def plan_sweep(recipe: str | Path, over: str, settings: list[str] | None = None) -> Sweep:
    """The recipes of a sweep.

    Args:
        recipe: name or path.
        over: the key and its values, as in "batch_size=256,512,1024".
        settings: `key=value` texts that all runs share.

    Raises:
        DoapError: one line that names the text and the error.

    Example:
        >>> list(plan_sweep("phototour-real", "batch_size=256,4096").recipes)
        ['batch_size=256', 'batch_size=4096']
    """
    key, _, listed = over.partition("=")
    key, texts = key.strip(), [text.strip() for text in listed.split(",")]
    if not key or not all(texts):
        raise DoapError(f"--over {over}: write it as key=value,value, for example batch_size=256,512,1024")
    recipes: dict[str, Recipe] = {}
    for text in texts:
        varied = read_recipe(recipe, [*(settings or []), f"{key}={text}"])
        value = getattr(varied, key)
        name = f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        if name in recipes:
            raise DoapError(f"--over {over}: {name} comes twice")
        recipes[name] = varied
    return Sweep(key, recipes)


def run_sweep(
    sweep: Sweep,
    series: Series,
    judge: Judge,
    about: Mapping[str, Any] | None = None,
    done: Callable[[list[Row]], None] = lambda _rows: None,
) -> list[Row]:
    """Train and judge every recipe of a sweep.

    Runs that are complete are only judged, one that was stopped goes on: a sweep that was killed ends, when
    it is started again, with the same numbers.

    Args:
        sweep: from `plan_sweep`.
        series: what the trainings share, and where they are.
        judge: what to measure of each run.
        about: further facts for sweep.json.
        done: called after every run with all rows so far: the value of the key, then what was measured.

    Raises:
        DoapError: one line; if the folder holds other trainings, before any is begun.
    """
    series.check(sweep.recipes)
    rows: list[Row] = []
    runs: dict[str, Any] = {}
    for name, recipe in sweep.recipes.items():
        model = series.train(name, recipe)
        rows.append({sweep.key: sweep.value(name), **judge(series.folder / name, model)})
        runs[name] = series.describe(name, recipe)
        series.write("sweep", rows, {"over": sweep.key, **(about or {}), "rows": rows, "runs": runs})
        done(rows)
    return rows


def evaluate_on_val(sweep: Sweep, series: Series) -> Judge:
    """A judge by exact AP on the scenes that a run held out: of its best weights, and after which epoch they were.

    A run validates itself on lists drawn as it draws its own. So that runs compare, all are judged on lists
    drawn as by the first.
    """
    first = next(iter(sweep.recipes.values()))

    def judge(run: Path, _last: Descriptor) -> dict[str, float]:
        validated = read_validation(run)
        if not validated:
            raise DoapError(f"{run}: was never validated; set it, for example val_fraction=0.1")
        epoch = max(validated, key=lambda row: (row[1], -row[0]))[0]
        held_out = series.sources.split(series.data, sweep.recipes[run.name])[1]
        lists = CommonLists(held_out, first, series.device, series.sources)
        return {"ap": lists.average_precision(load(run / BEST, series.device)), "epoch": epoch}

    return judge
