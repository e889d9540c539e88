"""Image matching on HPatches: every patch of the reference image proposes its nearest neighbour in another image.

A proposal is right if it is the patch of the same row. AP ranks the proposals of an image by distance; there are as
many positives as rows, found or not. The mean is taken over the five images of a sequence, then over sequences.

Among equally near neighbours the official code takes the first row. That is no gift on average, since the right one
may stand anywhere, but a lottery, which the fair rule replaces by what it gives on average: of k equally near
neighbours, one of them right, a proposal is right with a chance of 1/k.
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

ENTRIES_AT_ONCE = 1 << 24  # of the distance matrix: 128 MiB
KINDS = {"i_": "illumination", "v_": "viewpoint"}  # by what the official names of sequences begin with
RULES = ("official", "fair")


class Proposals(NamedTuple):
    """What N rows propose.

    Attributes:
        distance: (N,) to the nearest neighbour, squared.
        first_is_right: (N,) bool, whether the first of the nearest neighbours is right.
        chance: (N,) that one of them, taken at random, is right.
    """

    distance: Tensor
    first_is_right: NDArray[np.bool_]
    chance: NDArray[np.float64]


def matching(codes: Tensor, patches: PatchSet, progress: Progress = no_progress) -> list[Score]:
    """Scores in percent: by kind of sequence, noise and rule.

    The condition "all" is the mean of illumination and viewpoint, as in the official figure, where every sequence has
    a name of one of them and both occur; else the mean over sequences.

    Args:
        codes: (N, …) descriptors of all patches, on a device.
        patches: N of them.
        progress: told the sequences done, and how many there are.
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
    """Mean AP over the images of a sequence, (3 noises, 2 rules), from its (16, rows, …) codes."""
    reference, *others = (to_vectors(strip) for strip in strips)
    values = []
    for other in others:
        found = propose(reference, other, equal_within)
        ranks = tie_ranks(found.distance, equal_within)
        rows = len(reference)
        official = official_average_precision(ranks, found.first_is_right, rows)
        values.append((official, average_precision(ranks, found.chance, rows)))
    return np.asarray(np.reshape(values, (len(NOISES) - 1, IMAGES, len(RULES))).mean(1))


def propose(reference: Tensor, other: Tensor, equal_within: float) -> Proposals:
    """The nearest neighbours of (N, d) vectors among (N, d) others; right is the one of the same row."""
    parts = []
    for start in range(0, len(reference), at_once := max(1, ENTRIES_AT_ONCE // len(other))):
        squared = squared_distances(reference[start : start + at_once], other)
        distance = squared.amin(1)
        rows, columns = (squared <= distance[:, None] + equal_within).nonzero(as_tuple=True)  # row by row
        count = rows.bincount(minlength=len(squared))
        first = columns[count.cumsum(0) - count]
        own = torch.arange(start, start + len(squared), device=rows.device)
        among = torch.zeros_like(own, dtype=torch.bool)
        among[rows[columns == own[rows]]] = True
        parts.append((distance, first == own, among / count.double()))
    distance, right, chance = (torch.cat(part) for part in zip(*parts, strict=True))
    return Proposals(distance, right.cpu().numpy(), chance.cpu().numpy())


def _means(names: list[str], values: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """The mean of (sequences, 3, 2) values over the sequences of each kind, and over all."""
    kinds = np.array([KINDS.get(name[:2], "") for name in names])
    means = {kind: values[kinds == kind].mean(0) for kind in KINDS.values() if (kinds == kind).any()}
    both = len(means) == len(KINDS) and (kinds != "").all()
    return {**means, "all": np.mean(list(means.values()), axis=0) if both else values.mean(0)}
