"""Patch verification on HPatches: which pairs show the same point, told by their distances alone.

Balanced: as many positive pairs as negative ones, area under the ROC curve. Imbalanced: a fifth of the positives, AP.
In the official lists the negatives come first, and so they do among ties.
"""

import numpy as np
import torch
from torch import Tensor

from doap.datasets.official.hpatches import NOISES
from doap.datasets.official.hpatches_tasks import find_patches
from doap.datasets.sets.patch_set import PatchSet
from doap.evaluation.harness.result import Score
from doap.evaluation.hpatches.distances import pair_distances, tie_ranks, tolerance
from doap.evaluation.hpatches.lists import Pairs, VerificationLists
from doap.evaluation.metrics.average_precision import average_precision
from doap.evaluation.metrics.official import official_average_precision, official_roc_area
from doap.evaluation.metrics.roc import roc, roc_area
from doap.types import Progress, no_progress


def verification(
    codes: Tensor, patches: PatchSet, lists: VerificationLists, progress: Progress = no_progress
) -> list[Score]:
    """Scores in percent: by balance, kind of negatives, noise and rule.

    Args:
        codes: (N, …) descriptors of all patches, on a device.
        patches: N of them.
        lists: the pairs.
        progress: told the lists judged, and how many there are.
    """
    equal_within = tolerance(codes)
    scores: list[Score] = []
    total = len(NOISES[1:]) * len(lists.negatives)
    for noise in NOISES[1:]:
        positive = _distances(codes, patches, lists.positives, noise)
        for kind, pairs in lists.negatives.items():
            negative = _distances(codes, patches, pairs, noise)
            for (balance, rule), value in judge(negative, positive, equal_within).items():
                about: Score = {"task": "verification", "balance": balance, "condition": kind, "noise": noise}
                scores.append({**about, "rule": rule, "value": 100 * value})
            progress(len(scores) // 4, total)
    return scores


def judge(negative: Tensor, positive: Tensor, equal_within: float) -> dict[tuple[str, str], float]:
    """ROC area and AP of (M,) negative and (P,) positive pairs' distances, by balance and rule."""
    ranks = tie_ranks(torch.cat([negative, positive]), equal_within).astype(np.float64)
    same = np.arange(len(ranks)) >= len(negative)
    few = len(negative) + len(positive) // 5
    return {
        ("balanced", "official"): official_roc_area(ranks, same),
        ("balanced", "fair"): roc_area(*roc(ranks, same)),
        ("imbalanced", "official"): official_average_precision(ranks[:few], same[:few]),
        ("imbalanced", "fair"): average_precision(ranks[:few], same[:few]),
    }


def _distances(codes: Tensor, patches: PatchSet, pairs: Pairs, noise: str) -> Tensor:
    first, second = (find_patches(patches, places, noise) for places in pairs)
    return pair_distances(codes, first, second)
