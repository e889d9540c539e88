"""Patches and task lists of an HPatches folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from doap.datasets.official.hpatches import source_files
from doap.datasets.official.hpatches_tasks import find_split
from doap.datasets.official.opening import open_dataset
from doap.datasets.official.training_set import used_sequences
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError, check_choice
from doap.evaluation.harness.methods import Selection
from doap.evaluation.hpatches.lists import RetrievalLists, VerificationLists, retrieval_lists, verification_lists
from doap.types import Progress, no_progress

TASKS = ("verification", "matching", "retrieval")


@dataclass(frozen=True)
class TaskData:
    """Patches and lists of the requested tasks.

    Attributes:
        folder: Folder of the data.
        split: Split whose test sequences are used; None for all sequences.
        seed: Seed of sampled lists.
        tasks: Requested tasks that the data allows.
        patches: Patches of the test sequences.
        pairs: Pairs of verification.
        searches: Queries and distractors of retrieval.
        left_out: One line for each task or list that the data does not allow.
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
        """All patches; shared by all methods, so that their content key is computed once."""
        return Selection(self.patches)

    @property
    def sequences(self) -> list[str]:
        """Names of the test sequences."""
        return used_sequences(self.patches)

    def settings(self) -> dict[str, Any]:
        """Return the settings of a result."""
        return {
            "data": str(self.folder),
            "split": self.split,
            "sequences": self.sequences,
            "patches": len(self.patches),
            "tasks": list(self.tasks),
            "seed": self.seed,
            "verification lists": self.pairs.origin if self.pairs else None,
            "retrieval lists": self.searches.origin if self.searches else None,
            "left out": list(self.left_out),
        }


def open_tasks(
    folder: Path,
    split: str | None = None,
    tasks: Sequence[str] = TASKS,
    seed: int = 0,
    progress: Progress = no_progress,
) -> TaskData:
    """Open an HPatches folder and its task lists; patches are converted on first use, see `open_dataset`.

    Args:
        folder: Folder of sequences in the official format, or of one sequence.
        split: A, b, c, full, illum or view: use its test sequences and, where present, its official lists.
        tasks: Some of `TASKS`.
        seed: Seed of sampled lists.
        progress: Callback of the conversion, called as `progress(done, total)`.

    Raises:
        DoapError: If a task does not exist, or a file is missing or cannot be read.
    """
    for task in tasks:
        check_choice("task", task, TASKS)
    if not folder.is_dir():
        raise DoapError(f"{folder}: no such folder")
    if not source_files(folder):
        raise DoapError(f"{folder}: no HPatches sequence here (a folder with ref.png, e1.png … t5.png)")
    sequences = find_split(folder, split).test if split else None
    patches = open_dataset(folder, progress, sequences)
    pairs = verification_lists(patches, folder, split, seed) if "verification" in tasks else None
    searches = retrieval_lists(patches, folder, split, seed) if "retrieval" in tasks else None
    left_out = []
    if "verification" in tasks and not pairs:
        left_out.append("verification: needs a sequence with two points")
    if pairs and "inter" not in pairs.negatives:
        left_out.append("verification, inter: needs a second sequence")
    if "retrieval" in tasks and not searches:
        left_out.append("retrieval: needs distractors of other sequences")
    is_possible = {"verification": pairs is not None, "matching": True, "retrieval": searches is not None}
    possible = tuple(task for task in TASKS if task in tasks and is_possible[task])
    return TaskData(folder, split, seed, possible, patches, pairs, searches, tuple(left_out))
