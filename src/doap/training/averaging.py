"""The moving average of a network's weights over the steps of a training.

After step n it is Σₖ dⁿ⁻ᵏ wₖ / Σₖ dⁿ⁻ᵏ over the weights wₖ after each step k = 1..n, with the decay d: a weighted mean,
in which the weights before the first step have no part.

The statistics of batch normalisation are averaged with the weights. Computing them anew for the averaged weights would
take lists drawn for it alone; they are moving averages themselves, and change as slowly as the weights do.
"""

from copy import deepcopy

import torch
from torch import Tensor, nn

from doap.networks.network import PatchNetwork


class MovingAverage:
    """A network whose weights are the average of another's.

    Args:
        network: the one that is trained.
        decay: d, in (0, 1); about 1 / (1 - d) steps count.

    Attributes:
        network: the average, in evaluation mode.
        steps: how many it is of.
    """

    def __init__(self, network: PatchNetwork, decay: float) -> None:
        self.network = deepcopy(network).eval().requires_grad_(False)
        self.steps = 0
        self._decay = decay
        self._pairs = _split(self.network), _split(network)

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after a step."""
        (own, own_counts), (now, counts) = self._pairs
        self.steps += 1
        torch._foreach_lerp_(own, now, (1 - self._decay) / (1 - self._decay**self.steps))
        torch._foreach_copy_(own_counts, counts)


def _split(network: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """What is averaged, and what counts batches; the tensors themselves, which a training changes in place."""
    values = list(network.state_dict().values())
    return [v for v in values if v.is_floating_point()], [v for v in values if not v.is_floating_point()]
