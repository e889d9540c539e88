"""The plan of a reproduction: targets, trainings with their recipes, and sweeps, before anything is run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from doap.datasets.official.training_set import open_training_set
from doap.errors import DoapError, inflect
from doap.experiments.reproduce.data import DataFolder
from doap.experiments.reproduce.equal_terms import STEPS, equal_terms
from doap.experiments.reproduce.runner import Job, naming
from doap.experiments.reproduce.targets import BatchSizes, Target, Training
from doap.experiments.sweep import Sweep, plan_sweep
from doap.training.data_cache import Data
from doap.training.recipes.reading import read_recipe
from doap.training.recipes.recipe import Recipe
from doap.training.run_folder import FAILURE, is_complete

# A training of seconds on the small sets of `quick.py`; its figures mean nothing.
QUICK_SETTINGS = ("epochs=1", "batch_size=32", "width=8")
QUICK_CLUSTERS = 8
QUICK_BATCH_SIZES = (32, 48)

OpenSet = Callable[[tuple[Path, ...], str | None], Data]
"""Opens a training set: `open_set(folders, split)`."""


@dataclass(frozen=True)
class PlannedSweep:
    """A sweep over the batch size.

    Attributes:
        sizes: Data and metric of the sweep.
        sweep: Its runs.
        folder: Parent of the run folders.
    """

    sizes: BatchSizes
    sweep: Sweep
    folder: Path


@dataclass(frozen=True)
class Plan:
    """Everything that a reproduction does.

    Attributes:
        targets: Tables and figures to reproduce.
        skipped: Line for each requested target whose data is missing.
        data: Folder of the data sets.
        jobs: All trainings, each once, those of sweeps included.
        sweeps: Sweeps of the targets.
        device: "cpu" or "cuda".
        is_quick: Whether the sets and trainings are reduced to seconds.
        settings: `key=value` texts that override all recipes.
    """

    targets: tuple[Target, ...]
    skipped: tuple[str, ...]
    data: DataFolder
    jobs: tuple[Job, ...]
    sweeps: tuple[PlannedSweep, ...]
    device: str
    is_quick: bool
    settings: tuple[str, ...]

    def summary(self) -> str:
        """Return the number of trainings and how many of them are finished, as text."""
        finished = sum(is_complete(job.run) for job in self.jobs)
        failed = sum((job.run / FAILURE).exists() for job in self.jobs)
        started = sum(job.run.exists() for job in self.jobs) - finished - failed
        notes = [f"{finished} finished", f"{started} started"] + ([f"{failed} failed"] if failed else [])
        return f"{len(self.jobs)} {inflect(len(self.jobs), 'training')} ({', '.join(notes)})"


def find_targets(names: Sequence[str], targets: dict[str, Target]) -> list[Target]:
    """Return targets by name; all of them for "all".

    Raises:
        DoapError: For an unknown name.
    """
    unknown = [name for name in names if name != "all" and name not in targets]
    if unknown:
        raise DoapError(f"{unknown[0]}: no such table or figure here; choose from {', '.join(targets)}, all")
    return list(targets.values()) if "all" in names else [targets[name] for name in dict.fromkeys(names)]


def select_targets(
    names: Sequence[str], targets: dict[str, Target], data: DataFolder
) -> tuple[list[Target], list[str]]:
    """Return the requested targets whose data is there, and a line for each of the others.

    Args:
        names: Names of targets, or "all".
        targets: All targets by name.
        data: Folder of the data sets.

    Raises:
        DoapError: For an unknown name, a named target whose data is missing, or if no target has its data.
    """
    selected = find_targets(names, targets)
    lines = {target.name: data.explain_missing(target) for target in selected}
    skipped = [line for line in lines.values() if line]
    if "all" in names and len(skipped) == len(selected):
        raise DoapError(f"{data.folder}: no table or figure has all of its data here; {skipped[0]}")
    if skipped and "all" not in names:
        raise DoapError("; ".join(skipped))
    return [target for target in selected if not lines[target.name]], skipped


def find_datasets(targets: Sequence[Target], data: DataFolder) -> list[str]:
    """Return the names of all data sets that targets read."""
    optional = [name for target in targets for name in target.optional if not data.missing([name])]
    return list(dict.fromkeys([*(name for target in targets for name in target.datasets), *optional]))


def make_plan(
    targets: Sequence[Target],
    data: DataFolder,
    folder: Path,
    device: str = "cpu",
    settings: Sequence[str] = (),
    is_quick: bool = False,
    skipped: Sequence[str] = (),
    steps: int = STEPS,
) -> Plan:
    """Return the plan of a reproduction.

    Args:
        targets: Tables and figures whose data is there.
        data: Folder of the data sets; for a quick plan, of the reduced sets. On look-alike sets, recipes are changed by
            `equal_terms`.
        folder: Parent of the run folders.
        device: "cpu" or "cuda".
        settings: `key=value` texts that override all recipes.
        is_quick: Reduce the trainings to seconds.
        skipped: Line for each requested target whose data is missing.
        steps: Steps of each training on look-alike sets.

    Raises:
        DoapError: If an override is invalid, or a batch is too large for a look-alike set.
    """
    overrides = [*(QUICK_SETTINGS if is_quick else ()), *settings]
    trainings = {training.name: training for target in targets for training in target.trainings}
    open_set: OpenSet = lru_cache(1)(open_training_set)  # trainings on the same data follow each other

    def job(training: Training, overrides: Sequence[str], folder: Path) -> Job:
        paths, run = tuple(data.path(name) for name in training.datasets), folder / training.name
        with naming(run):
            recipe = _read_recipe(training, data, overrides, is_quick, steps, open_set)
        return Job(training, recipe, paths, run, device)

    jobs = [
        job(training, overrides, folder)
        for training in sorted(trainings.values(), key=lambda training: training.datasets)
    ]
    sweeps = []
    for sizes in (sizes for target in targets for sizes in target.sweeps):
        values = ",".join(map(str, QUICK_BATCH_SIZES if is_quick else sizes.values))
        sweep = plan_sweep(sizes.recipe, f"batch_size={values}", list(overrides))
        parent = folder / f"batch-size-{sizes.name}"
        runs = [
            job(Training(name, sizes.recipe, (sizes.dataset,)), [*overrides, f"batch_size={sweep.value(name)}"], parent)
            for name in sweep.recipes
        ]
        recipes = {run.training.name: run.recipe for run in runs}
        sweeps.append(PlannedSweep(sizes, Sweep(sweep.key, recipes), parent))
        jobs += runs
    return Plan(tuple(targets), tuple(skipped), data, tuple(jobs), tuple(sweeps), device, is_quick, tuple(settings))


def _read_recipe(
    training: Training, data: DataFolder, overrides: Sequence[str], is_quick: bool, steps: int, open_set: OpenSet
) -> Recipe:
    recipe = read_recipe(training.recipe, [*training.settings, *overrides])
    adapted: list[str] = []
    if is_quick and recipe.label_mining:
        adapted = [f"mining_clusters={QUICK_CLUSTERS}"]
    elif data.is_look_alike and not is_quick:
        paths = tuple(data.path(name) for name in training.datasets)
        others = [text for text in overrides if text.partition("=")[0].strip() != "lr"]
        own = read_recipe(training.recipe, [*training.settings, *others])
        lr = recipe.lr if len(others) < len(overrides) else None
        adapted = equal_terms(own, open_set(paths, recipe.split), steps, lr)
    return read_recipe(training.recipe, [*training.settings, *adapted, *overrides]) if adapted else recipe
