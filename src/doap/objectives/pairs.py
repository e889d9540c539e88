"""How whole groups become the pairs that pairwise losses are written for.

Each group is cut, in the order of the batch, into disjoint pairs: first and second patch, third and fourth,
and so on. So every patch is used once (the last of an odd group not at all), groups of two are exactly the
pairs of the papers, and a trainer that wants other pairs each time only shuffles the batch. Two pairs of one
group show the same point, so they are never each other's negatives.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from doap.objectives.average_precision import relaxed_descriptors
from doap.objectives.lists import check_batch, check_matches


@dataclass(frozen=True)
class Pairs:
    """N matching pairs: where in the batch their two patches are, and their group; each (N,)."""

    first: Tensor
    second: Tensor
    groups: Tensor

    @property
    def related(self) -> Tensor:
        """(N, N) bool: pairs of one group, each pair with itself included."""
        return self.groups[:, None] == self.groups[None, :]


def unit_batch(outputs: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Check a batch; its unit vectors (M, d) and its groups (M,) on the same device."""
    check_batch(outputs, groups)
    return relaxed_descriptors(outputs, "real"), groups.to(outputs.device)


def pair_up(groups: Tensor) -> Pairs:
    """Cut each group, (M,) integers, into disjoint pairs."""
    order = groups.argsort(stable=True)
    by_group = groups[order]
    place = torch.arange(len(groups), device=groups.device) - torch.searchsorted(by_group, by_group)
    opens = (place[:-1] % 2 == 0) & (by_group[:-1] == by_group[1:])
    check_matches(opens)
    start = opens.nonzero().flatten()
    return Pairs(order[start], order[start + 1], by_group[start])
