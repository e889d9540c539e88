"""Patch verification on HPatches: classify pairs of patches as matching or not by their distance.

Balanced: as many positive as negative pairs, area under the ROC curve. Imbalanced: a fifth of the positives, AP. In the
official lists the negatives come first, and hence they do among ties.
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
    """Return scores in percent, by balance, kind of negatives, noise and rule.

    Args:
        codes: (N, …) descriptors of all patches, on a device.
        patches: Set of N patches.
        lists: Pairs of patches.
        progress: Callback, called as `progress(done, total)` with numbers of lists.
    """
    equal_within = tolerance(codes)
    scores: list[Score] = []
    total = len(NOISES[1:]) * len(lists.negatives)
    for noise in NOISES[1:]:
        positive = _distances(codes, patches, lists.positives, noise)
        for kind, pairs in lists.negatives.items():
            negative = _distances(codes, patches, pairs, noise)
            for (balance, rule), value in evaluate_pairs(negative, positive, equal_within).items():
                condition: Score = {"task": "verification", "balance": balance, "condition": kind, "noise": noise}
                scores.append({**condition, "rule": rule, "value": 100 * value})
            progress(len(scores) // 4, total)
    return scores


def evaluate_pairs(negative: Tensor, positive: Tensor, equal_within: float) -> dict[tuple[str, str], float]:
    """Compute ROC area and AP from the distances of (M,) negative and (P,) positive pairs, by balance and rule."""
    ranks = tie_ranks(torch.cat([negative, positive]), equal_within).astype(np.float64)
    same = np.arange(len(ranks)) >= len(negative)
    imbalanced = len(negative) + max(1, len(positive) // 5)
    return {
        ("balanced", "official"): official_roc_area(ranks, same),
        ("balanced", "tie-aware"): roc_area(*roc(ranks, same)),
        ("imbalanced", "official"): official_average_precision(ranks[:imbalanced], same[:imbalanced]),
        ("imbalanced", "tie-aware"): average_precision(ranks[:imbalanced], same[:imbalanced]),
    }


def _distances(codes: Tensor, patches: PatchSet, pairs: Pairs, noise: str) -> Tensor:
    first, second = (find_patches(patches, locations, noise) for locations in pairs)
    return pair_distances(codes, first, second)
