"""Image matching on HPatches: every patch of the reference image proposes its nearest neighbour in another image.

A proposal is correct if it is the patch of the same row. AP ranks the proposals of an image by distance; the number of
positives is the number of rows, whether found or not. The mean is over the five images of a sequence, then over
sequences.

Among equally near neighbours the official code takes the first row. This is unbiased on average, since the correct
one may be anywhere, but random. The tie-aware rule replaces it by its expectation: among k equally near neighbours,
one of them correct, a proposal is correct with probability 1/k.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.datasets.official.hpatches import IMAGES, NOISES, STRIPS
from doap.datasets.official.hpatches_tasks import sequence_blocks
from doap.datasets.sets.patch_set import PatchSet
from doap.evaluation.harness.result import Score
from doap.evaluation.hpatches.distances import squared_distances, tie_ranks, to_vectors, tolerance
from doap.evaluation.metrics.average_precision import average_precision
from doap.evaluation.metrics.official import official_average_precision
from doap.types import Progress, no_progress

BLOCK_ENTRIES = 1 << 24  # of the distance matrix: 128 MiB
KINDS = {"i_": "illumination", "v_": "viewpoint"}  # by the prefix of a sequence's official name
RULES = ("official", "tie-aware")


class Proposals(NamedTuple):
    """Proposals of N rows.

    Attributes:
        distance: (N,) squared distance to the nearest neighbour.
        is_first_correct: (N,) bool, whether the first of the nearest neighbours is correct.
        probability: (N,) probability that one of them, chosen at random, is correct.
    """

    distance: Tensor
    is_first_correct: NDArray[np.bool_]
    probability: NDArray[np.float64]


def matching(codes: Tensor, patches: PatchSet, progress: Progress = no_progress) -> list[Score]:
    """Return scores in percent, by kind of sequence, noise and rule.

    The condition "all" is the mean of illumination and viewpoint, as in the official figure, if every sequence is
    named as one of them and both occur; otherwise it is the mean over sequences.

    Args:
        codes: (N, …) descriptors of all patches, on a device.
        patches: Set of N patches.
        progress: Callback, called as `progress(done, total)` with numbers of sequences.
    """
    equal_within = tolerance(codes)
    blocks = sequence_blocks(patches)
    values = np.empty((len(blocks), len(NOISES) - 1, len(RULES)))
    for number, (start, rows) in enumerate(blocks.values()):
        strips = codes[start : start + len(STRIPS) * rows].view(len(STRIPS), rows, -1)
        values[number] = match_sequence(strips, equal_within)
        progress(number + 1, len(blocks))
    return [
        {"task": "matching", "condition": kind, "noise": noise, "rule": rule, "value": 100 * float(mean[n, r])}
        for kind, mean in _means(list(blocks), values).items()
        for n, noise in enumerate(NOISES[1:])
        for r, rule in enumerate(RULES)
    ]


def match_sequence(strips: Tensor, equal_within: float) -> NDArray[np.float64]:
    """Return the mean AP over the images of a sequence, (3 noises, 2 rules), from its (16, rows, …) codes."""
    reference, *others = (to_vectors(strip) for strip in strips)
    values = []
    for other in others:
        proposals = propose(reference, other, equal_within)
        ranks = tie_ranks(proposals.distance, equal_within)
        rows = len(reference)
        official = official_average_precision(ranks, proposals.is_first_correct, rows)
        values.append((official, average_precision(ranks, proposals.probability, rows)))
    return np.asarray(np.reshape(values, (len(NOISES) - 1, IMAGES, len(RULES))).mean(1))


def propose(reference: Tensor, other: Tensor, equal_within: float) -> Proposals:
    """Find the nearest neighbours of (N, d) vectors among (N, d) others; the correct one is that of the same row."""
    blocks = []
    step = max(1, BLOCK_ENTRIES // len(other))
    for start in range(0, len(reference), step):
        squared = squared_distances(reference[start : start + step], other)
        distance = squared.amin(1)
        rows, columns = (squared <= distance[:, None] + equal_within).nonzero(as_tuple=True)  # sorted by row
        count = rows.bincount(minlength=len(squared))
        first = columns[count.cumsum(0) - count]
        own = torch.arange(start, start + len(squared), device=rows.device)
        is_among = torch.zeros_like(own, dtype=torch.bool)
        is_among[rows[columns == own[rows]]] = True
        blocks.append((distance, first == own, is_among / count.double()))
    distance, correct, probability = (torch.cat(column) for column in zip(*blocks, strict=True))
    return Proposals(distance, correct.cpu().numpy(), probability.cpu().numpy())


def _means(names: list[str], values: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Return the mean of (sequences, 3, 2) values over the sequences of each kind, and over all."""
    kinds = np.array([KINDS.get(name[:2], "") for name in names])
    means = {kind: values[kinds == kind].mean(0) for kind in KINDS.values() if (kinds == kind).any()}
    has_both = len(means) == len(KINDS) and (kinds != "").all()
    return {**means, "all": np.mean(list(means.values()), axis=0) if has_both else values.mean(0)}
