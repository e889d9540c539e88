"""The three tasks of HPatches, at easy, hard and tough (paper, "HPatches"), on folders in the official format.

Every figure is computed by two rules. "official" is the arithmetic of the official Python code, for comparison with
published figures. "tie-aware" is true Average Precision (or ROC area) in which items at equal distance have no order,
so that binary codes, whose distances often tie, neither gain nor lose.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
from torch import Tensor

from doap.errors import DoapError
from doap.evaluation.harness.methods import Method, PatchDescriber
from doap.evaluation.harness.result import Result, Score
from doap.evaluation.harness.table import Table
from doap.evaluation.harness.training_sets import metadata_of
from doap.evaluation.hpatches.csv_descriptors import CsvDescriptors, write_descriptors
from doap.evaluation.hpatches.distances import to_device
from doap.evaluation.hpatches.matching import matching
from doap.evaluation.hpatches.retrieval import retrieval
from doap.evaluation.hpatches.tables import hpatches_tables
from doap.evaluation.hpatches.task_data import TASKS, TaskData, open_tasks
from doap.evaluation.hpatches.verification import verification
from doap.types import Progress, StepProgress, no_step_progress

RULE = (
    "official: the arithmetic of the official Python code, areas by the trapezoid rule, ties in the order of its lists "
    "(in verification negatives first, in retrieval positives first); tie-aware: true AP and ROC area, ties in no "
    "order; retrieval is the mean over the official pools that were filled"
)
COLUMNS = ("task", "balance", "condition", "noise", "pool", "rule", "value")  # of all tasks


@dataclass(frozen=True)
class HPatches:
    """Verification, matching and retrieval of every method.

    Attributes:
        data: Folder of sequences in the official format, or of one sequence.
        split: A, b, c, full, illum or view: only its test sequences are used. All sequences by default.
        tasks: Some of `TASKS`.
        seed: Seed of task lists that are not present and therefore sampled.
        descriptors: Folders of descriptors computed elsewhere, evaluated beside the methods; see `CsvDescriptors`.
        device: Device that computes distances.
    """

    name: ClassVar[str] = "hpatches"

    data: Path
    split: str | None = None
    tasks: Sequence[str] = TASKS
    seed: int = 0
    descriptors: Sequence[Path] = ()
    device: str = "cpu"

    def evaluate(self, methods: Sequence[PatchDescriber], progress: StepProgress = no_step_progress) -> Result:
        """Evaluate all methods and the given descriptor folders, one after the other.

        Args:
            methods: Methods to evaluate.
            progress: Callback, called as `progress(step, done, total)`.

        Raises:
            DoapError: If data or descriptors cannot be read, the data allows none of the tasks, two descriptors have
                the same name, or a descriptor is not finite.
        """
        describers = [*methods, *map(CsvDescriptors, self.descriptors)]
        _check_names([describer.name for describer in describers])
        data = self._open(progress)
        if not data.tasks:
            raise DoapError(f"{self.data}: {'; '.join(data.left_out)}; give another folder or task")
        scores: list[Score] = []
        for describer in describers:
            descriptors = describer.describe_patches(data.selection, partial(progress, f"describing, {describer.name}"))
            if not np.isfinite(descriptors).all():
                raise DoapError(f"{describer.name}: some descriptors are not numbers; is the model damaged?")
            codes = to_device(descriptors, self.device)
            for task in data.tasks:
                for score in _evaluate_task(task, codes, data, partial(progress, f"{task}, {describer.name}")):
                    scores.append({"descriptor": describer.name, **{name: score.get(name) for name in COLUMNS}})
        return Result(
            benchmark=self.name,
            settings={**data.settings(), "rule": RULE},
            methods=[metadata_of(describer, "hpatches", data.sequences) for describer in describers],
            scores=scores,
        )

    def export(self, methods: Sequence[Method], folder: Path, progress: StepProgress = no_step_progress) -> None:
        """Write the descriptors of methods in the layout of the official benchmark, one folder per method.

        Args:
            methods: Methods whose descriptors are written.
            folder: Parent of the new folders.
            progress: Callback, called as `progress(step, done, total)`.

        Raises:
            DoapError: If one of the folders exists, or the data cannot be read.
        """
        targets = {method.name: folder / method.name.strip("/").replace("/", "_") for method in methods}
        for target in targets.values():
            if target.exists():
                raise DoapError(f"{target}: exists already; remove it or choose another --export")
        data = self._open(progress)
        for method in methods:
            descriptors = method.describe_patches(data.selection, partial(progress, f"describing, {method.name}"))
            write_descriptors(
                targets[method.name], data.patches, descriptors, partial(progress, f"writing, {method.name}")
            )

    @staticmethod
    def tables(result: Result) -> list[Table]:
        """Return one table per task, and one for balanced verification."""
        return hpatches_tables(result)

    @staticmethod
    def draw(result: Result, path: Path) -> None:
        """Draw the bars of the paper's figure."""
        from doap.evaluation.hpatches.figure import draw_hpatches

        draw_hpatches(result, path)

    def _open(self, progress: StepProgress) -> TaskData:
        return open_tasks(self.data, self.split, self.tasks, self.seed, partial(progress, "converting"))


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise DoapError(f"two descriptors are called {name}; rename a folder of --descriptors")


def _evaluate_task(task: str, codes: Tensor, data: TaskData, progress: Progress) -> list[Score]:
    if task == "verification" and data.pairs:
        return verification(codes, data.patches, data.pairs, progress)
    if task == "retrieval" and data.searches:
        return retrieval(codes, data.patches, data.searches, progress)
    return matching(codes, data.patches, progress)
