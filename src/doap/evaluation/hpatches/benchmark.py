"""The three tasks of HPatches, at easy, hard and tough (paper, "HPatches"), on official folders and others like them.

Every figure is given by two rules. "official" is the arithmetic of the official Python code, for comparison with
published figures. "fair" is true Average Precision (or ROC area) in which equally far items have no order, so that
binary codes, whose distances tie often, gain and lose nothing by it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from doap.datasets.official.hpatches import source_files
from doap.datasets.official.hpatches_tasks import find_split
from doap.datasets.official.opening import open_any
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.evaluation.harness.methods import Selection
from doap.evaluation.harness.result import Result, Score
from doap.evaluation.hpatches.distances import to_device
from doap.evaluation.hpatches.lists import RetrievalLists, VerificationLists, retrieval_lists, verification_lists
from doap.evaluation.hpatches.matching import matching
from doap.evaluation.hpatches.retrieval import retrieval
from doap.evaluation.hpatches.verification import verification
from doap.types import Descriptors, Progress, no_progress

TASKS = ("verification", "matching", "retrieval")
RULE = (
    "official: the arithmetic of the official Python code, areas by the trapezoid rule, ties in the order of its lists "
    "(in verification negatives first, in retrieval positives first); fair: true AP and ROC area, ties in no order; "
    "retrieval is the mean over the official pools that were filled"
)


class PatchDescriber(Protocol):
    """What is judged: a `Method`, or descriptors made elsewhere (`hpatches_csv`)."""

    @property
    def name(self) -> str:
        """In tables."""

    def about(self) -> dict[str, Any]:
        """For the record of a result."""

    def describe_patches(self, selection: Selection, progress: Progress = no_progress) -> Descriptors:
        """(n, d) float32 or (n, bits / 8) uint8."""


@dataclass(frozen=True)
class HPatchesTest:
    """What is described and compared.

    Attributes:
        folder: the data.
        split: whose test sequences are used; None for all there are.
        seed: of drawn lists.
        tasks: those asked for that the data can give.
        patches: of the test sequences.
        pairs: for verification.
        searches: for retrieval.
        left_out: what the data cannot give, in one line each.
    """

    folder: Path
    split: str | None
    seed: int
    tasks: tuple[str, ...]
    patches: PatchSet
    pairs: VerificationLists | None
    searches: RetrievalLists | None
    left_out: tuple[str, ...]

    @cached_property
    def selection(self) -> Selection:
        """All patches, named by their pixels once for all descriptors."""
        return Selection(self.patches)

    def settings(self) -> dict[str, Any]:
        """For the record of a result."""
        return {
            "data": str(self.folder),
            "split": self.split,
            "sequences": [self.patches.sequence_names[number] for number in np.unique(self.patches.sequences)],
            "patches": len(self.patches),
            "tasks": list(self.tasks),
            "seed": self.seed,
            "verification lists": self.pairs.origin if self.pairs else None,
            "retrieval lists": self.searches.origin if self.searches else None,
            "left out": list(self.left_out),
            "rule": RULE,
        }


def open_test(
    folder: Path,
    split: str | None = None,
    tasks: Sequence[str] = TASKS,
    seed: int = 0,
    progress: Progress = no_progress,
) -> HPatchesTest:
    """Open an HPatches folder and the lists of its tasks; patches are converted the first time, see `official`.

    Args:
        folder: with a folder a sequence in the official format, or that of one sequence.
        split: a, b, c, full, illum or view: its test sequences and, where they are there, its official lists.
        tasks: some of `TASKS`.
        seed: of lists that are drawn.
        progress: told the pieces done of a conversion, and how many there are.

    Raises:
        DoapError: one line that names the file and the error.
    """
    for task in tasks:
        if task not in TASKS:
            raise DoapError(f"--tasks: no task {task}; there are {', '.join(TASKS)}")
    if not source_files(folder):
        raise DoapError(f"{folder}: no HPatches sequence here (a folder with ref.png, e1.png … t5.png)")
    sequences = find_split(folder, split).half("test") if split else None
    patches = open_any(folder, progress, sequences)
    pairs = verification_lists(patches, folder, split, seed) if "verification" in tasks else None
    searches = retrieval_lists(patches, folder, split, seed) if "retrieval" in tasks else None
    missing = []
    if "verification" in tasks and not pairs:
        missing.append("verification: needs a sequence with two points")
    if pairs and "inter" not in pairs.negatives:
        missing.append("verification, inter: needs a second sequence")
    if "retrieval" in tasks and not searches:
        missing.append("retrieval: needs distractors of other sequences")
    possible = {"verification": pairs is not None, "matching": True, "retrieval": searches is not None}
    wanted = tuple(task for task in TASKS if task in tasks and possible[task])
    return HPatchesTest(folder, split, seed, wanted, patches, pairs, searches, tuple(missing))


def evaluate(
    test: HPatchesTest,
    describers: Sequence[PatchDescriber],
    device: str = "cpu",
    begin: Callable[[str], Progress] = lambda _work: no_progress,
) -> Result:
    """Judge descriptors, one after the other.

    Args:
        test: from `open_test`.
        describers: what to judge.
        device: where distances are computed.
        begin: told what begins, in words; gives what is then told how much of it is done.
    """
    scores: list[Score] = []
    for describer in describers:
        descriptors = describer.describe_patches(test.selection, begin(f"describing, {describer.name}"))
        if not np.isfinite(descriptors).all():
            raise DoapError(f"{describer.name}: some descriptors are not numbers; is the model damaged?")
        codes = to_device(descriptors, device)
        for task in test.tasks:
            told = begin(f"{task}, {describer.name}")
            if task == "verification" and test.pairs:
                found = verification(codes, test.patches, test.pairs, told)
            elif task == "retrieval" and test.searches:
                found = retrieval(codes, test.patches, test.searches, told)
            else:
                found = matching(codes, test.patches, told)
            scores += [{"descriptor": describer.name, **_columns(score)} for score in found]
    about = [describer.about() for describer in describers]
    return Result(benchmark="hpatches", settings=test.settings(), methods=about, scores=scores)


def _columns(score: Score) -> Score:
    """A score with the columns of all tasks, in one order."""
    names = ("task", "balance", "condition", "noise", "pool", "rule", "value")
    return {name: score.get(name) for name in names}
