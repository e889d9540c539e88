"""How whole groups become the pairs that pairwise losses are written for.

Each group is cut, in the order of the batch, into disjoint pairs: first and second patch, third and fourth,
and so on. So every patch is used once (the last of an odd group not at all), groups of two are exactly the
pairs of the papers, and a trainer that wants other pairs each time only shuffles the batch. Two pairs of one
group show the same point, so they are never each other's negatives; nor are pairs of which patches ignore each
other.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from doap.objectives.average_precision import relaxed_descriptors
from doap.objectives.lists import IgnoreTable, check_batch, check_matches


@dataclass(frozen=True)
class Pairs:
    """N matching pairs.

    Attributes:
        first: (N,) where in the batch their first patches are.
        second: (N,) and their second ones.
        related_patches: (M, M) bool, which patches are no negatives of each other, see the function of this name.
    """

    first: Tensor
    second: Tensor
    related_patches: Tensor

    @property
    def related(self) -> Tensor:
        """(N, N) bool: pairs of which some patches are related, each pair with itself included."""
        sides = (self.first, self.second)
        return torch.stack([self.related_patches[one][:, other] for one in sides for other in sides]).any(0)


def unit_batch(outputs: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Check a batch; its unit vectors (M, d) and its groups (M,) on the same device."""
    check_batch(outputs, groups)
    return relaxed_descriptors(outputs, "real"), groups.to(outputs.device)


def related_patches(groups: Tensor, ignore: IgnoreTable | None) -> Tensor:
    """(M, M) bool: patches that are no negatives of each other, for they are of one group or ignore each other."""
    related = groups[:, None] == groups
    if ignore is None:
        return related
    ignore.check(len(groups))
    labels = ignore.labels.to(groups.device, torch.int64)
    return related | ignore.table.to(groups.device)[labels][:, labels]


def pair_up(groups: Tensor, ignore: IgnoreTable | None = None) -> Pairs:
    """Cut each group, (M,) integers, into disjoint pairs."""
    order = groups.argsort(stable=True)
    by_group = groups[order]
    place = torch.arange(len(groups), device=groups.device) - torch.searchsorted(by_group, by_group)
    opens = (place[:-1] % 2 == 0) & (by_group[:-1] == by_group[1:])
    check_matches(opens)
    start = opens.nonzero().flatten()
    return Pairs(order[start], order[start + 1], related_patches(groups, ignore))
