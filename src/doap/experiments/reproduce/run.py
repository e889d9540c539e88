"""Reproduction of tables and figures: check the data, train what is not trained yet, evaluate, draw.

The output folder holds

    runs/              one run folder per training, see `doap.training.run_folder`; sweeps have a folder of several
    binarised/         real-valued models as bits
    results/           one JSON file per benchmark or sweep, and the figures
    reproduction.json  data, device and overrides, and what was skipped or has failed

A quick reproduction writes all this to the folder `quick` inside the output folder.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from doap.errors import DoapError
from doap.experiments.reproduce.data import DataFolder
from doap.experiments.reproduce.equal_terms import STEPS
from doap.experiments.reproduce.plan import Plan, find_datasets, make_plan, select_targets
from doap.experiments.reproduce.quick import make_quick_data
from doap.experiments.reproduce.results import FailedTrainingsError, ResultWriter
from doap.experiments.reproduce.runner import Report, check_runs, run_trainings
from doap.experiments.reproduce.targets import Target
from doap.files import make_folder, remove_temporary_files, write_text
from doap.training.recipes.reading import setting_keys
from doap.types import StepProgress, no_step_progress

RESULTS, RUNS, BINARISED, QUICK = "results", "runs", "binarised", "quick"
RECORD = "reproduction.json"


@dataclass(frozen=True)
class Request:
    """What to reproduce, and how.

    Attributes:
        names: Names of targets, or "all".
        targets: All targets by name, from `paper_targets` or `look_alike_targets`.
        data: Folder of the data sets.
        output: Output folder.
        device: "cpu" or "cuda".
        workers: Number of trainings at the same time.
        settings: `key=value` texts that override all recipes.
        is_quick: Reduce sets and trainings so that everything takes minutes; the figures mean nothing.
        steps: Steps of each training on look-alike sets.
    """

    names: Sequence[str]
    targets: dict[str, Target]
    data: DataFolder
    output: Path
    device: str = "cpu"
    workers: int = 1
    settings: Sequence[str] = ()
    is_quick: bool = False
    steps: int = STEPS

    @property
    def folder(self) -> Path:
        """Folder that everything is written to."""
        return self.output / QUICK if self.is_quick else self.output

    @property
    def equal_steps(self) -> int | None:
        """Steps of every training; None if the epochs of the recipes or of `settings` decide."""
        is_equal = self.data.is_look_alike and not self.is_quick and "epochs" not in setting_keys(self.settings)
        return self.steps if is_equal else None


@dataclass(frozen=True)
class Outcome:
    """The end of a reproduction.

    Attributes:
        results: Folder of the results, for a report.
        skipped: Line for each requested target whose data is missing.
        failures: Line for each training that has failed, and for each target that cannot be evaluated without them.
    """

    results: Path
    skipped: tuple[str, ...]
    failures: tuple[str, ...]


def prepare(request: Request, progress: StepProgress = no_step_progress) -> Plan:
    """Check the data and the run folders, and return the plan; a quick request first makes its reduced sets.

    Raises:
        DoapError: If a target is unknown, data is missing or damaged, an override is invalid, or a run folder holds
            another training. Nothing is trained then.
    """
    targets, skipped = select_targets(request.names, request.targets, request.data)
    data = request.data
    if request.is_quick:
        needed = {name for target in targets for name in (*target.datasets, *target.optional)}
        data = make_quick_data(data, sorted(needed), request.folder / "data", progress)
    data.check(find_datasets(targets, data), progress)
    plan = make_plan(
        targets,
        data,
        request.folder / RUNS,
        request.device,
        request.settings,
        request.is_quick,
        skipped,
        request.steps,
    )
    check_runs(plan.jobs)
    return plan


def reproduce(
    request: Request,
    report: Report,
    progress: StepProgress = no_step_progress,
    on_target: Callable[[str], None] = lambda _name: None,
) -> Outcome:
    """Train what is not trained yet, evaluate, and draw. An interrupted reproduction continues if started again.

    Args:
        request: What to reproduce.
        report: Callback of the trainings.
        progress: Callback of everything else, called as `progress(step, done, total)`.
        on_target: Callback before the evaluation of each target, called with its name.

    Raises:
        DoapError: As `prepare`; or if another process writes to the same folder.
    """
    folder = make_folder(request.folder)
    try:
        with FileLock(folder / ".lock", timeout=0):
            for path, _, _ in os.walk(folder):  # what a killed one left
                remove_temporary_files(Path(path))
            plan = prepare(request, progress)
            failures = run_trainings(plan.jobs, request.workers, report)
            writer = ResultWriter(plan, make_folder(folder / RESULTS), folder / BINARISED, progress)
            for target in plan.targets:
                on_target(target.name)
                try:
                    writer.write(target)
                except FailedTrainingsError as error:  # the others go on without it
                    failures.append(str(error))
            write_text(folder / RECORD, json.dumps(_record(request, plan, failures), indent=1) + "\n")
    except Timeout as error:
        raise DoapError(f"{folder}: another reproduction writes to this folder; wait until it ends") from error
    return Outcome(folder / RESULTS, plan.skipped, tuple(failures))


def _record(request: Request, plan: Plan, failures: Sequence[str]) -> dict[str, object]:
    return {
        "targets": [target.name for target in plan.targets],
        "data": str(plan.data.folder),
        "look-alike": plan.data.is_look_alike,
        "quick": plan.is_quick,
        "device": plan.device,
        "steps": request.equal_steps,
        "settings": list(request.settings),
        "skipped": list(plan.skipped),
        "failed": list(failures),
    }
