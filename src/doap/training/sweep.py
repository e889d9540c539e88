"""Sweeps: one recipe trained once for each value of one of its keys (paper, "Influence of training batch size").

The folder of a sweep holds a run for each value, list_size=256 and so on; sweep.csv, a line a run; and sweep.json:
the same, with the recipe, data, device and versions of each run. Both grow with every run that is done.
"""

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from doap.errors import DoapError
from doap.files import make_folder, write_text
from doap.networks.descriptor import Descriptor
from doap.networks.registry import load
from doap.patches.frameset import FrameSet
from doap.patches.patchset import PatchSet
from doap.training.log import Status, read_validation
from doap.training.recipe import Recipe, read_recipe
from doap.training.run_folder import BEST, WEIGHTS, Source, is_complete, read_run
from doap.training.trainer import IN_MEMORY, train
from doap.training.validation import Validation, split_sequences

# What is measured of a run, given its folder and its model: numbers by name, the one that matters first.
Judge = Callable[[Path, Descriptor], Mapping[str, float]]
# A line of sweep.csv: the value, then what was measured.
Row = dict[str, Any]
# Told the name of a run, and how far its training is.
Progress = Callable[[str, Status], None]


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
        over: the key and its values, as in "list_size=256,512,1024".
        settings: `key=value` texts that all runs share.

    Raises:
        DoapError: one line that names the text and the fault.

    Example:
        >>> list(plan_sweep("phototour-real", "list_size=256,4096").recipes)
        ['list_size=256', 'list_size=4096']
    """
    key, _, listed = over.partition("=")
    key, texts = key.strip(), [text.strip() for text in listed.split(",")]
    if not key or not all(texts):
        raise DoapError(f"--over {over}: write it as key=value,value, for example list_size=256,512,1024")
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
    data: PatchSet | FrameSet,
    folder: Path,
    judge: Judge,
    *,
    about: Mapping[str, Any] | None = None,
    source: Source = IN_MEMORY,
    device: str = "cpu",
    progress: Progress = lambda _run, _status: None,
    done: Callable[[list[Row]], None] = lambda _rows: None,
) -> list[Row]:
    """Train and judge every recipe of a sweep.

    Runs that are complete are only judged, one that was stopped goes on: a sweep that was killed ends, when
    it is started again, with the same numbers.

    Args:
        sweep: from `plan_sweep`.
        data: what to train on.
        folder: of the sweep.
        judge: what to measure of each run.
        about: further facts for sweep.json.
        source: where the data comes from, for the record.
        device: "cpu" or "cuda".
        progress: called when news of a training comes in.
        done: called after every run with all rows so far.

    Raises:
        DoapError: one line; if the folder holds other trainings, before any is begun.
    """
    _check_folder(sweep, data, folder)
    rows: list[Row] = []
    for name, recipe in sweep.recipes.items():
        run = folder / name

        def so_far(status: Status, name: str = name) -> None:
            progress(name, status)

        if not is_complete(run):
            train(recipe=recipe, data=data, run=run, name=name, source=source, device=device, progress=so_far)
        # As it is on disk, so that it is the same model to the last bit whether it was trained now or before.
        model = load(run / WEIGHTS, device)
        rows.append({sweep.key: sweep.value(name), **judge(run, model)})
        _write(sweep, folder, rows, about or {})
        done(rows)
    return rows


def judge_by_held_out(sweep: Sweep, data: PatchSet | FrameSet, device: str = "cpu") -> Judge:
    """A judge by exact AP on the sequences that a run held out: of its best weights, and after which epoch they were.

    A run validates itself on lists drawn as it draws its own. So that runs compare, all are judged on lists
    drawn as by the first.

    Args:
        sweep: from `plan_sweep`.
        data: what it is trained on.
        device: "cpu" or "cuda".
    """
    first = next(iter(sweep.recipes.values()))

    def judge(run: Path, _last: Descriptor) -> dict[str, float]:
        recipe = sweep.recipes[run.name]
        validated = read_validation(run)
        if not validated:
            raise DoapError(f"{run}: was never validated; set held_out, for example held_out=0.1")
        epoch = max(validated, key=lambda row: (row[1], -row[0]))[0]
        best = load(run / BEST, device)
        drawn = first.model_copy(update={"kind": recipe.kind})
        lists = Validation(split_sequences(data, recipe)[1], drawn, torch.device(device), best.input_size)
        return {"ap": lists.average_precision(best.network), "epoch": epoch}

    return judge


def _check_folder(sweep: Sweep, data: PatchSet | FrameSet, folder: Path) -> None:
    """Refuse a folder of other trainings before hours are spent on this one."""
    make_folder(folder)
    for name, recipe in sweep.recipes.items():
        run = folder / name
        if not run.exists():
            continue
        if read_run(run).patches != repr(data):
            raise DoapError(f"{run}: holds a run on another set; choose another folder")
        if read_recipe(run / "recipe.yaml") != recipe:
            raise DoapError(f"{run}: holds a run of another recipe; choose another folder")


def _write(sweep: Sweep, folder: Path, rows: list[Row], about: Mapping[str, Any]) -> None:
    table = io.StringIO()
    writer = csv.DictWriter(table, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / "sweep.csv", table.getvalue())
    names = list(sweep.recipes)[: len(rows)]
    runs = {
        name: {"recipe": sweep.recipes[name].model_dump(), **json.loads((folder / name / "run.json").read_text())}
        for name in names
    }
    content = {"over": sweep.key, **about, "rows": rows, "runs": runs}
    write_text(folder / "sweep.json", json.dumps(content, indent=1) + "\n")
