"""Patch retrieval on RomePatches: a patch ranks the other patches of its half (paper, "RomePatches").

The metric is the mean of exact Average Precision, with two choices of queries:

    all       every patch is a query, and ranks all other patches of its half
    official  the patches of `labels_gt` are queries, and rank the patches of `labels`; if the data names them

The paper and the authors of the data do not say which they report. The first uses every patch, and is the headline.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from doap.datasets.build.look_alike import is_look_alike
from doap.datasets.official.opening import open_dataset
from doap.datasets.official.romepatches import HALVES, TEST, source_files
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.evaluation.harness.methods import Method, Selection
from doap.evaluation.harness.result import Result, Score
from doap.evaluation.harness.table import Table
from doap.evaluation.harness.training_sets import metadata_of
from doap.evaluation.romepatches.retrieval import mean_average_precision
from doap.evaluation.romepatches.tables import romepatches_table
from doap.types import Progress, StepProgress, no_progress, no_step_progress

RULE = (
    "mAP: exact Average Precision, the mean over all orders of patches at equal distance, so ties gain nothing; "
    "every patch is a query that ranks all others of its half. Squared Euclidean distances in float64; Hamming "
    "distances of bits"
)


@dataclass(frozen=True)
class RomePatches:
    """Retrieval mAP of every method on both halves.

    Attributes:
        data: Official folder.
        device: Device that ranks patches; the CPU is used in place of a device without float64.
    """

    name: ClassVar[str] = "romepatches"

    data: Path
    device: str = "cpu"

    def evaluate(self, methods: Sequence[Method], progress: StepProgress = no_step_progress) -> Result:
        """Evaluate all methods on the halves that are present.

        Args:
            methods: Methods to evaluate.
            progress: Callback, called as `progress(step, done, total)`.

        Raises:
            DoapError: If the data cannot be read, or no query has a match.
        """
        patches = open_halves(self.data, partial(progress, "converting"))
        halves = [half for half in HALVES if half in patches.sequence_names]
        scores: list[Score] = []
        for half in halves:
            indices = np.flatnonzero(patches.sequences == patches.sequence_names.index(half))
            selection = Selection(patches, indices)
            for method in methods:
                measured = self._evaluate_half(method, selection, half, progress)
                scores.append({"descriptor": method.name, "half": half, **measured})
        return Result(
            benchmark=self.name,
            settings={
                "data": str(self.data),
                "look-alike": is_look_alike(self.data),
                "patches": {
                    half: int((patches.sequences == patches.sequence_names.index(half)).sum()) for half in halves
                },
                "rule": RULE,
            },
            methods=[metadata_of(method, self.name, [TEST]) for method in methods],
            scores=scores,
        )

    def _evaluate_half(self, method: Method, selection: Selection, half: str, progress: StepProgress) -> Score:
        indices = selection.indices
        groups = selection.patches.groups[indices]
        is_query = selection.patches.labels["query"][indices] == 1
        descriptors = method.describe_patches(selection, partial(progress, f"describing {half} by {method.name}"))
        ranking = partial(progress, f"ranking {half} by {method.name}")
        official = (
            mean_average_precision(descriptors, groups, is_query, self.device, ranking) if is_query.any() else None
        )
        return {
            "map": 100 * mean_average_precision(descriptors, groups, None, self.device, ranking),
            "map official queries": None if official is None else 100 * official,
        }

    @staticmethod
    def tables(result: Result) -> list[Table]:
        """Return Table 2 of the paper, with the measured rows first."""
        return [romepatches_table(result)]

    @staticmethod
    def draw(result: Result, path: Path) -> None:
        """Draw the mAP of both halves as bars."""
        from doap.evaluation.romepatches.figure import draw_romepatches

        draw_romepatches(result, path)


def open_halves(folder: Path, progress: Progress = no_progress) -> PatchSet:
    """Open the official folder as a patch set whose sequences are the halves "train" and "test", or the one present.

    Raises:
        DoapError: If a file is missing or cannot be read.
    """
    if not folder.is_dir():
        raise DoapError(f"{folder}: no such folder")
    if not source_files(folder):
        raise DoapError(f"{folder}: not an official folder of RomePatches (patch_retrieval_Rome_train.mat …)")
    return open_dataset(folder, progress)
