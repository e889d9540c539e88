"""Patch retrieval on HPatches: a reference patch searches its five copies among patches of other sequences.

A pool of size K holds the five copies and the first K - 5 distractors of the list that are of another sequence, or all
of them if there are fewer. The official code puts the copies first and sorts stably, so that they win every tie: a
constant descriptor scores 100. The tie-aware rule gives ties no order.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.datasets.official.hpatches import IMAGES, NOISES
from doap.datasets.official.hpatches_tasks import PatchLocations, find_patches
from doap.datasets.sets.patch_set import PatchSet
from doap.evaluation.harness.result import Score
from doap.evaluation.hpatches.distances import squared_distances, to_vectors, tolerance
from doap.evaluation.hpatches.lists import RetrievalLists
from doap.evaluation.hpatches.matching import RULES
from doap.evaluation.metrics.official import step_precision
from doap.types import Progress, no_progress

OFFICIAL_POOLS = (100, 500, 1000, 5000, 10_000, 15_000, 20_000)
MATLAB_POOL = 2000  # of the official MATLAB code, whose AP is the true one
CHUNK_SIZE = 256  # queries ranked at once

Counts = NDArray[np.int64]


def pools_of(distractors: int) -> list[int]:
    """Return the pools that a list of distractors fills; for a list shorter than the official one also its own size."""
    filled = {pool for pool in (*OFFICIAL_POOLS, MATLAB_POOL) if pool <= distractors}
    return sorted(filled if distractors >= OFFICIAL_POOLS[-1] else {*filled, distractors + IMAGES})


def retrieval(codes: Tensor, patches: PatchSet, lists: RetrievalLists, progress: Progress = no_progress) -> list[Score]:
    """Return scores in percent, by noise, pool and rule.

    Args:
        codes: (N, …) descriptors of all patches, on a device.
        patches: Set of N patches.
        lists: Queries and distractors.
        progress: Callback, called as `progress(done, total)` with numbers of queries.
    """
    equal_within = tolerance(codes)
    pools = pools_of(len(lists.distractors))
    queries, distractors = (find_patches(patches, listed, "easy") for listed in (lists.queries, lists.distractors))
    copies = _find_copies(patches, lists.queries)
    names = np.array(lists.queries.sequence_names)
    query_sequences = names[lists.queries.sequences]
    distractor_sequences = np.array(lists.distractors.sequence_names)[lists.distractors.sequences]
    totals = np.zeros((len(RULES), len(pools), len(NOISES) - 1))
    done = 0
    for name in names[np.isin(names, query_sequences)]:  # some sequences may have no query
        others = to_vectors(_take(codes, distractors[distractor_sequences != name]))
        own = np.flatnonzero(query_sequences == name)
        for chunk in np.split(own, range(CHUNK_SIZE, len(own), CHUNK_SIZE)):
            query_vectors = to_vectors(_take(codes, queries[chunk]))
            copy_vectors = to_vectors(_take(codes, copies[chunk].reshape(-1)))
            copy_vectors = copy_vectors.view(len(chunk), -1, query_vectors.shape[1])
            nearer, tied, distance = rank_copies(query_vectors, copy_vectors, others, pools, equal_within)
            for rule, precision in enumerate((official_precision, tie_aware_precision)):
                totals[rule] += precision(nearer, tied, distance, equal_within).sum(0)
            done += len(chunk)
            progress(done, len(queries))
    return [
        {"task": "retrieval", "noise": noise, "pool": pool, "rule": rule, "value": float(100 * value / len(queries))}
        for rule, by_pool in zip(RULES, totals, strict=True)
        for pool, by_noise in zip(pools, by_pool, strict=True)
        for noise, value in zip(NOISES[1:], by_noise, strict=True)
    ]


def rank_copies(
    queries: Tensor, copies: Tensor, distractors: Tensor, pools: Sequence[int], equal_within: float
) -> tuple[Counts, Counts, NDArray[np.float64]]:
    """Count the distractors that are nearer to a query than each of its copies, and those that are equally near.

    Args:
        queries: (Q, d) vectors.
        copies: (Q, 15, d), five of each noise.
        distractors: (K, d).
        pools: P sizes.
        equal_within: See `tolerance`.

    Returns:
        (Q, P, 3, 5) number of nearer distractors, (Q, P, 3, 5) number of equally near ones, and (Q, 3, 5) squared
        distances of the copies.
    """
    own = (copies - queries[:, None]).square().sum(2)
    bounds, order = torch.cat([own - equal_within, own + equal_within], 1).sort(1)
    bins = torch.searchsorted(bounds, squared_distances(queries, distractors))
    one = torch.ones((), dtype=torch.int64, device=bins.device).expand_as(bins)
    counts = bins.new_zeros(len(queries), bounds.shape[1] + 1)
    by_pool = []
    start = 0
    for pool in pools:
        end = pool - IMAGES
        counts.scatter_add_(1, bins[:, start:end], one[:, start:end])
        # Distractors below a bound are those of all bins up to its own; the last bin is above every bound.
        below = counts.cumsum(1)[:, :-1]
        by_pool.append(torch.empty_like(below).scatter_(1, order, below))
        start = end
    shape = (len(queries), len(pools), len(NOISES) - 1, IMAGES)
    nearer, or_as_near = (half.reshape(shape).cpu().numpy() for half in torch.stack(by_pool, 1).chunk(2, dim=2))
    return nearer, or_as_near - nearer, own.double().view(len(queries), *shape[2:]).cpu().numpy()


def official_precision(
    nearer: Counts, _tied: Counts, distance: NDArray[np.float64], equal_within: float
) -> NDArray[np.float64]:
    """Return the trapezoid AP of each query, (Q, P, 3), ties won by the copies; arguments as from `rank_copies`."""
    _, equal, before = _compare_copies(distance, equal_within)
    earlier = np.tri(IMAGES, k=-1, dtype=bool)
    count = before + (equal & earlier).sum(-1) + 1
    count = np.broadcast_to(count[:, None], nearer.shape)
    return np.asarray(step_precision(count, count + nearer).mean(-1))


def tie_aware_precision(
    nearer: Counts, tied: Counts, distance: NDArray[np.float64], equal_within: float
) -> NDArray[np.float64]:
    """Return the true AP of each query, (Q, P, 3), ties in no order: `average_precision` with the sum in closed form.

    A copy in a tie of n items, n⁺ of them copies, behind a items of which R are copies, has the expected precision

        1/n Σ_{t=a+1}^{a+n} [R + 1 + (t-a-1) e] / t = 1/n [(R + 1 - (a+1) e) (H_{a+n} - H_a) + n e],

    with e = (n⁺-1)/(n-1) and the harmonic numbers H.
    """
    copies, _, before = _compare_copies(distance, equal_within)
    copies, before = copies[:, None], before[:, None]
    items = copies + tied
    ahead = before + nearer
    others = (copies - 1) / np.maximum(items - 1, 1)
    harmonic = np.concatenate(([0.0], np.cumsum(1 / np.arange(1, int((ahead + items).max()) + 1))))
    spread = harmonic[ahead + items] - harmonic[ahead]
    return np.asarray((((before + 1 - (ahead + 1) * others) * spread) / items + others).mean(-1))


def _compare_copies(distance: NDArray[np.float64], equal_within: float) -> tuple[Counts, NDArray[np.bool_], Counts]:
    """Return for each copy the number of equally near copies, including itself, which, and the number nearer."""
    difference = distance[..., :, None] - distance[..., None, :]
    equal = np.abs(difference) <= equal_within
    return equal.sum(-1), equal, (difference > equal_within).sum(-1)


def _find_copies(patches: PatchSet, queries: PatchLocations) -> NDArray[np.int64]:
    """Return the (Q, 15) indices of the copies of the queries: five of each noise."""
    indices = []
    for noise in NOISES[1:]:
        for image in range(1, IMAGES + 1):
            copies = replace(queries, images=queries.images + image)
            indices.append(find_patches(patches, copies, noise))
    return np.stack(indices, axis=1)


def _take(codes: Tensor, rows: NDArray[np.int64]) -> Tensor:
    return codes[torch.from_numpy(rows).to(codes.device)]
