"""Loss of a nested descriptor: one whose prefixes are descriptors as well.

    L(F) = 1/|K| Σ_{k ∈ K} L_k(F_1..k)

K are the lengths of the prefixes and of the whole, F_1..k the first k activations. Normalisation is part of each L_k:
each prefix is L2-normalised, or relaxed by tanh, by itself. The idea is that of Matryoshka representation learning
(Kusupati et al., NeurIPS 2022), here for Average Precision.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class NestedLoss(nn.Module):
    """Mean of the losses of several prefixes of the outputs.

        L = 1/|K| Σ_{k ∈ K} L_k(outputs[:, :k])

    Args:
        losses: Loss of the first k activations, by k. A loss may occur several times.

    Example:
        >>> import torch
        >>> from doap.objectives import AveragePrecisionLoss
        >>> plain = AveragePrecisionLoss("real")
        >>> nested = NestedLoss({2: plain, 4: plain})
        >>> outputs, groups = torch.randn(16, 4), torch.arange(16) // 4
        >>> mean = (plain(outputs[:, :2], groups) + plain(outputs, groups)) / 2
        >>> torch.allclose(nested(outputs, groups), mean)
        True
    """

    def __init__(self, losses: Mapping[int, nn.Module]) -> None:
        super().__init__()
        if not losses or min(losses) < 1:
            raise ValueError(f"a nested loss needs lengths of at least 1, not {sorted(losses)}")
        self.lengths = tuple(losses)
        self.losses = nn.ModuleList(losses.values())

    def forward(self, outputs: Tensor, *arguments: Any) -> Tensor:
        """Compute the loss of a batch, a scalar.

        Args:
            outputs: (M, d) raw activations of the network, d at least the largest length.
            arguments: Further arguments of every loss.

        Raises:
            ValueError: If a length is larger than d, or as the losses.
        """
        if outputs.ndim != 2 or outputs.shape[1] < max(self.lengths):
            raise ValueError(f"outputs must be (M, {max(self.lengths)}) or wider, not {tuple(outputs.shape)}")
        pairs = zip(self.lengths, self.losses, strict=True)
        return torch.stack([loss(outputs[:, :length], *arguments) for length, loss in pairs]).mean()
