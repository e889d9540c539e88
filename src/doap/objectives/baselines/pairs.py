"""Anchor-positive pairs from groups, for the losses that are defined on pairs.

Each group is split, in the order of the batch, into disjoint pairs (a, p): first and second patch, third and fourth,
and so on. Every patch is used once, except the last of an odd group. Groups of two are the pairs of the papers. To
get other pairs, shuffle the batch. Two pairs of one group show the same point and are never each other's negatives;
nor are pairs with patches that ignore each other.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from doap.objectives.average_precision import relaxed_descriptors
from doap.objectives.lists import IgnoreTable, check_batch, check_matches


@dataclass(frozen=True)
class MatchingPairs:
    """N matching pairs of a batch.

    Attributes:
        anchors: (N,) indices of the anchors a_i.
        positives: (N,) indices of the positives p_i.
        related_patches: (M, M) bool, which patches are not negatives of each other; see `related_patches`.
    """

    anchors: Tensor
    positives: Tensor
    related_patches: Tensor

    @property
    def related_pairs(self) -> Tensor:
        """(N, N) bool: pairs with any related patches, which includes each pair with itself."""
        sides = (self.anchors, self.positives)
        return torch.stack([self.related_patches[one][:, other] for one in sides for other in sides]).any(0)


def unit_batch(outputs: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Check a batch and return its unit vectors (M, d) and its groups (M,), on the same device."""
    check_batch(outputs, groups)
    return relaxed_descriptors(outputs, "real"), groups.to(outputs.device, torch.int64)


def related_patches(groups: Tensor, ignore: IgnoreTable | None) -> Tensor:
    """Return which patches are not negatives of each other, (M, M) bool: of one group, or ignoring each other."""
    related = groups[:, None] == groups
    if ignore is None:
        return related
    ignore.check(len(groups))
    labels = ignore.labels.to(groups.device, torch.int64)
    return related | ignore.table.to(groups.device)[labels][:, labels]


def make_pairs(groups: Tensor, ignore: IgnoreTable | None = None) -> MatchingPairs:
    """Split each group, (M,) integers, into disjoint pairs."""
    order = groups.argsort(stable=True)
    sorted_groups = groups[order]
    group_starts = torch.searchsorted(sorted_groups, sorted_groups)
    index_in_group = torch.arange(len(groups), device=groups.device) - group_starts
    is_anchor = (index_in_group[:-1] % 2 == 0) & (sorted_groups[:-1] == sorted_groups[1:])
    check_matches(is_anchor)
    anchors = is_anchor.nonzero().flatten()
    return MatchingPairs(order[anchors], order[anchors + 1], related_patches(groups, ignore))
