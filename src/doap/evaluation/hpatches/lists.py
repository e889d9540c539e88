"""What the tasks of HPatches compare: the official lists where they lie beside the data, others drawn by a seed.

The rule of the drawn lists follows the official generator, so that figures on them mean the same:

- Pairs. A sequence, all equally often; two different rows of it; two different images, of 0 to 4 as in the official
  lists, which never take the last one. The first patch with the second image of its own row is a positive pair, with
  that of the other row an intra-sequence negative, and with a row of another sequence an inter-sequence negative.
  The official generator lets that other sequence be the same one, by chance; here it never is. 20 pairs of each kind
  a row, and at most the official million.
- Retrieval. Reference patches, those of all sequences equally often, none twice, none flat (a standard deviation of
  at most 10 grey values): the first 10,000 are queries, the next 20,000 distractors. Where there are fewer, a third
  are queries.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.datasets.official.hpatches import IMAGES
from doap.datasets.official.hpatches_tasks import (
    Places,
    find_patches,
    find_task_file,
    read_retrieval_list,
    read_verification_pairs,
    sequence_blocks,
)
from doap.datasets.sets.patch_set import PatchSet

MOST_PAIRS, PAIRS_A_ROW = 1_000_000, 20
QUERIES, DISTRACTORS = 10_000, 20_000
FLAT = 10.0
AT_ONCE = 8192  # patches read

Pairs = tuple[Places, Places]


@dataclass(frozen=True)
class VerificationLists:
    """Pairs of patches, as many of each kind.

    Attributes:
        positives: of the same point.
        negatives: of different points, by kind: "intra" of one sequence, "inter" of two. A kind that the data cannot
            give is not there.
        origin: where they come from, in words.
    """

    positives: Pairs
    negatives: dict[str, Pairs]
    origin: str


@dataclass(frozen=True)
class RetrievalLists:
    """Reference patches.

    Attributes:
        queries: what is searched with.
        distractors: what is searched beside a query's own copies; those of its sequence are left out.
        origin: where they come from, in words.
    """

    queries: Places
    distractors: Places
    origin: str


def verification_lists(patches: PatchSet, folder: Path, split: str | None, seed: int) -> VerificationLists | None:
    """The official pairs of a split if all three lists are there, else drawn ones; None if no sequence has two rows.

    Args:
        patches: of the test sequences.
        folder: of HPatches, see `find_task_file`.
        split: whose lists to look for.
        seed: of drawn lists.
    """
    names = [f"verif_{kind}_split-{split}.csv" for kind in ("pos", "neg_intra", "neg_inter")]
    files = [found for name in names if split and (found := find_task_file(folder, name))]
    if len(files) < len(names):
        return draw_pairs(patches, seed)
    positives, intra, inter = map(read_verification_pairs, files)
    return VerificationLists(positives, {"intra": intra, "inter": inter}, f"official ({names[0]} …)")


def retrieval_lists(patches: PatchSet, folder: Path, split: str | None, seed: int) -> RetrievalLists | None:
    """The official queries and distractors of a split if both are there, else drawn ones; None if there are none.

    Args: as of `verification_lists`.
    """
    names = [f"retr_{kind}_split-{split}.csv" for kind in ("queries", "distractors")]
    files = [found for name in names if split and (found := find_task_file(folder, name))]
    if len(files) < len(names):
        return draw_queries(patches, seed)
    queries, distractors = map(read_retrieval_list, files)
    return RetrievalLists(queries, distractors, f"official ({names[0]} …)")


def draw_pairs(patches: PatchSet, seed: int) -> VerificationLists | None:
    """Pairs by the rule above; None if no sequence has two rows."""
    names, rows = _rows(patches)
    usable = np.flatnonzero(rows > 1)
    if not len(usable):
        return None
    random = np.random.default_rng([seed, 0])
    count = min(MOST_PAIRS, PAIRS_A_ROW * int(rows.sum()))
    sequence = random.choice(usable, count)
    image, other_image = _two_different(np.full(count, IMAGES), random)
    row, other_row = _two_different(rows[sequence], random)
    first = Places(names, sequence, image, row)
    negatives = {"intra": (first, Places(names, sequence, other_image, other_row))}
    if len(names) > 1:
        elsewhere = (sequence + random.integers(1, len(names), count)) % len(names)
        negatives["inter"] = (first, Places(names, elsewhere, other_image, _below(rows[elsewhere], random)))
    positives = (first, Places(names, sequence, other_image, row))
    return VerificationLists(positives, negatives, f"drawn, {count:,} pairs of each kind, seed {seed}")


def draw_queries(patches: PatchSet, seed: int) -> RetrievalLists | None:
    """Queries and distractors by the rule above; None with one sequence, whose patches never distract each other."""
    names, rows = _rows(patches)
    sequence = np.repeat(np.arange(len(names)), rows)
    row = np.concatenate([np.arange(n) for n in rows])
    every = Places(names, sequence, np.zeros_like(row), row)
    rich = np.flatnonzero(~_flat(patches, find_patches(patches, every, "easy")))
    # The shortest of waiting times, each as long as its sequence on average, is a draw of a sequence and of a row.
    waiting = np.random.default_rng([seed, 1]).exponential(rows[sequence[rich]].astype(np.float64))
    order = rich[np.argsort(waiting)][: QUERIES + DISTRACTORS]
    queries = len(order) * QUERIES // (QUERIES + DISTRACTORS)
    first, second = (Places(names, sequence[part], row[part] * 0, row[part]) for part in np.split(order, [queries]))
    if not len(first) or len(np.unique(second.sequences)) < 2:
        return None
    origin = f"drawn, {len(first):,} queries and {len(second):,} distractors, seed {seed}"
    return RetrievalLists(first, second, origin)


def _rows(patches: PatchSet) -> tuple[list[str], NDArray[np.int64]]:
    """The names of the sequences, and how many rows each has."""
    blocks = sequence_blocks(patches)
    return list(blocks), np.array([rows for _, rows in blocks.values()], np.int64)


def _below(limits: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """A whole number from 0 up to, not including, each limit."""
    return np.asarray(random.integers(0, limits), np.int64)


def _two_different(
    limits: NDArray[np.int64], random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Two different numbers below each limit."""
    first, second = _below(limits, random), _below(limits - 1, random)
    return first, second + (second >= first)


def _flat(patches: PatchSet, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
    parts = np.array_split(indices, -(-len(indices) // AT_ONCE))
    return np.concatenate([patches.take(part).std(axis=(1, 2)) <= FLAT for part in parts])
