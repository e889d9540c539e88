"""Task lists of HPatches: the official ones where they are present beside the data, otherwise sampled with a seed.

Sampled lists follow the official generator, so that figures on them have the same meaning:

- Pairs. Sample a sequence, all with equal probability; two different rows of it; two different images, of 0 to 4 as in
  the official lists, which never use the last image. The first patch with the second image of its own row is a
  positive pair, with that of the other row an intra-sequence negative, and with a row of another sequence an
  inter-sequence negative. The official generator occasionally samples the same sequence as that other one; here it
  never is. There are 20 pairs of each kind per row, and at most the official million.
- Retrieval. Reference patches, those of all sequences with equal probability, without replacement, none of them flat
  (a standard deviation of at most 10 grey values): the first 10,000 are queries, the next 20,000 distractors. If there
  are fewer, a third are queries.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.datasets.official.hpatches import IMAGES
from doap.datasets.official.hpatches_tasks import (
    PatchLocations,
    find_patches,
    find_task_file,
    read_retrieval_list,
    read_verification_pairs,
    sequence_blocks,
)
from doap.datasets.sets.patch_set import PatchSet

MAX_PAIRS, PAIRS_PER_ROW = 1_000_000, 20
QUERIES, DISTRACTORS = 10_000, 20_000
FLAT = 10.0
CHUNK_SIZE = 8192  # patches read at once

Pairs = tuple[PatchLocations, PatchLocations]


@dataclass(frozen=True)
class VerificationLists:
    """Pairs of patches, the same number of each kind.

    Attributes:
        positives: Pairs of the same point.
        negatives: Pairs of different points by kind: "intra" of one sequence, "inter" of two. A kind that the data does
            not allow is absent.
        origin: Where the pairs come from, as text.
    """

    positives: Pairs
    negatives: dict[str, Pairs]
    origin: str


@dataclass(frozen=True)
class RetrievalLists:
    """Reference patches.

    Attributes:
        queries: Queries of the search.
        distractors: Patches that a query ranks beside its own copies; those of its own sequence are left out.
        origin: Where the lists come from, as text.
    """

    queries: PatchLocations
    distractors: PatchLocations
    origin: str


def verification_lists(patches: PatchSet, folder: Path, split: str | None, seed: int) -> VerificationLists | None:
    """Read the official pairs of a split if all three lists are present, otherwise sample pairs.

    Args:
        patches: Patches of the test sequences.
        folder: Folder of HPatches, see `find_task_file`.
        split: Split whose lists are used.
        seed: Seed of sampled lists.

    Returns:
        The lists, or None if no sequence has two rows.
    """
    names = [f"verif_{kind}_split-{split}.csv" for kind in ("pos", "neg_intra", "neg_inter")]
    files = [file for name in names if split and (file := find_task_file(folder, name))]
    if len(files) < len(names):
        return sample_pairs(patches, seed)
    positives, intra, inter = map(read_verification_pairs, files)
    return VerificationLists(positives, {"intra": intra, "inter": inter}, f"official ({names[0]} …)")


def retrieval_lists(patches: PatchSet, folder: Path, split: str | None, seed: int) -> RetrievalLists | None:
    """Read the official queries and distractors of a split if both lists are present, otherwise sample them.

    Args:
        patches: Patches of the test sequences.
        folder: Folder of HPatches, see `find_task_file`.
        split: Split whose lists are used.
        seed: Seed of sampled lists.

    Returns:
        The lists, or None if there are no distractors of other sequences.
    """
    names = [f"retr_{kind}_split-{split}.csv" for kind in ("queries", "distractors")]
    files = [file for name in names if split and (file := find_task_file(folder, name))]
    if len(files) < len(names):
        return sample_queries(patches, seed)
    queries, distractors = map(read_retrieval_list, files)
    if len({*queries.sequence_names, *distractors.sequence_names}) < 2:
        return None
    return RetrievalLists(queries, distractors, f"official ({names[0]} …)")


def sample_pairs(patches: PatchSet, seed: int) -> VerificationLists | None:
    """Sample pairs as described above; None if no sequence has two rows."""
    names, rows = _rows(patches)
    usable = np.flatnonzero(rows > 1)
    if not len(usable):
        return None
    random = np.random.default_rng([seed, 0])
    count = min(MAX_PAIRS, PAIRS_PER_ROW * int(rows.sum()))
    sequence = random.choice(usable, count)
    image, other_image = _sample_two(np.full(count, IMAGES), random)
    row, other_row = _sample_two(rows[sequence], random)
    first = PatchLocations(names, sequence, image, row)
    negatives = {"intra": (first, PatchLocations(names, sequence, other_image, other_row))}
    if len(names) > 1:
        other = (sequence + random.integers(1, len(names), count)) % len(names)
        negatives["inter"] = (first, PatchLocations(names, other, other_image, _sample_below(rows[other], random)))
    positives = (first, PatchLocations(names, sequence, other_image, row))
    return VerificationLists(positives, negatives, f"sampled, {count:,} pairs of each kind, seed {seed}")


def sample_queries(patches: PatchSet, seed: int) -> RetrievalLists | None:
    """Sample queries and distractors as described above; None if there is only one sequence."""
    names, rows = _rows(patches)
    sequence = np.repeat(np.arange(len(names)), rows)
    row = np.concatenate([np.arange(n) for n in rows])
    references = PatchLocations(names, sequence, np.zeros_like(row), row)
    textured = np.flatnonzero(~_is_flat(patches, find_patches(patches, references, "easy")))
    # Sorting exponential variables with the sequence lengths as means samples sequences uniformly, then rows.
    waiting = np.random.default_rng([seed, 1]).exponential(rows[sequence[textured]].astype(np.float64))
    order = textured[np.argsort(waiting)][: QUERIES + DISTRACTORS]
    count = len(order) * QUERIES // (QUERIES + DISTRACTORS)
    queries, distractors = (
        PatchLocations(names, sequence[indices], row[indices] * 0, row[indices]) for indices in np.split(order, [count])
    )
    if not len(queries) or len(np.unique(distractors.sequences)) < 2:
        return None
    origin = f"sampled, {len(queries):,} queries and {len(distractors):,} distractors, seed {seed}"
    return RetrievalLists(queries, distractors, origin)


def _rows(patches: PatchSet) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names of the sequences and their numbers of rows."""
    blocks = sequence_blocks(patches)
    return list(blocks), np.array([rows for _, rows in blocks.values()], np.int64)


def _sample_below(limits: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """Sample an integer from 0 up to, not including, each limit."""
    return np.asarray(random.integers(0, limits), np.int64)


def _sample_two(limits: NDArray[np.int64], random: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sample two different integers below each limit."""
    first, second = _sample_below(limits, random), _sample_below(limits - 1, random)
    return first, second + (second >= first)


def _is_flat(patches: PatchSet, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
    chunks = np.array_split(indices, -(-len(indices) // CHUNK_SIZE))
    return np.concatenate([patches.take(chunk).std(axis=(1, 2)) <= FLAT for chunk in chunks])
