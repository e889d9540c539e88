"""Exponential moving average of the weights during a training.

After step n the average is Σₖ dⁿ⁻ᵏ wₖ / Σₖ dⁿ⁻ᵏ over the weights wₖ after the steps k = 1..n, with decay d. The sum in
the denominator corrects the bias: the initial weights have no influence.

The running statistics of batch normalisation are averaged with the weights. Recomputing them for the averaged weights
would need extra batches; they are moving averages themselves and change as slowly as the weights.
"""

from collections.abc import Sequence

from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from doap.networks.network import PatchNetwork


class MovingAverage:
    """Moving average of a network's weights and buffers.

    Args:
        network: Network under training.
        decay: d, in (0, 1); about 1 / (1 - d) steps contribute.

    Attributes:
        network: The averaged network, in evaluation mode.
    """

    def __init__(self, network: PatchNetwork, decay: float) -> None:
        self._source = network
        self._decay = decay
        self._average = AveragedModel(network, multi_avg_fn=self._update, use_buffers=True)
        averaged = self._average.module.eval().requires_grad_(False)
        assert isinstance(averaged, PatchNetwork)
        self.network = averaged

    @property
    def steps(self) -> int:
        """Number of steps averaged."""
        return int(self._average.n_averaged)

    @steps.setter
    def steps(self, count: int) -> None:
        self._average.n_averaged.fill_(count)

    def update(self) -> None:
        """Add the weights after a step to the average."""
        self._average.update_parameters(self._source)

    def _update(self, averaged: Sequence[Tensor], current: Sequence[Tensor], _steps: Tensor | int) -> None:
        """Update tensors of one type; counters, such as the batches seen by batch normalisation, are copied."""
        # Not the argument, which is a copy on the tensors' device: reading it would synchronise with a GPU.
        weight = (1 - self._decay) / (1 - self._decay ** (self.steps + 1))
        for average, value in zip(averaged, current, strict=True):
            if average.is_floating_point():
                average.lerp_(value, weight)
            else:
                average.copy_(value)
