"""A linear layer over a whole map as the head of a small network."""

import torch
from torch import Tensor, nn

from doap.networks.network import LayeredNetwork, as_rows

# With more dimensions than this, the head is a product of two matrices.
MAX_DIRECT_DIMENSIONS = 128


class LinearHeadNetwork(LayeredNetwork):
    """Base class of networks whose last layers are those of `linear_head` and a batch normalisation."""

    def _keep_outputs(self, count: int) -> None:
        """Keep the first outputs; the head becomes that of a network of so many dimensions."""
        super()._keep_outputs(count)
        *layers, first, second, normalisation = self.layers
        if isinstance(first, nn.Linear) and isinstance(second, nn.Linear):
            self.layers = nn.Sequential(*layers, *_reshape_head(first, second), normalisation)


class Flatten(nn.Module):
    """Flatten maps in the order of rows, columns and channels, without a copy of maps in channels-last order."""

    def forward(self, maps: Tensor) -> Tensor:
        """Return (N, H · W · C) of (N, C, H, W)."""
        return as_rows(maps)


def linear_head(features: int, dimensions: int) -> list[nn.Module]:
    """Return linear layers without bias, with at most `features * MAX_DIRECT_DIMENSIONS` weights.

    Args:
        features: Length of the input.
        dimensions: Length of the output.
    """
    if dimensions <= MAX_DIRECT_DIMENSIONS:
        return [nn.Linear(features, dimensions, bias=False)]
    rank = max(1, features * MAX_DIRECT_DIMENSIONS // (features + dimensions))
    return [nn.Linear(features, rank, bias=False), nn.Linear(rank, dimensions, bias=False)]


def _reshape_head(first: nn.Linear, second: nn.Linear) -> list[nn.Module]:
    """Return the product of two matrices as the head of a new network of its dimensions: one matrix, or two."""
    head = linear_head(first.in_features, second.out_features)
    matrices = [layer.weight for layer in head if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        if len(matrices) == 1:
            matrices[0].copy_(second.weight.double() @ first.weight.double())
        else:  # of a higher rank
            for matrix, layer in zip(matrices, (first, second), strict=True):
                rows, columns = layer.weight.shape
                matrix.zero_()[:rows, :columns] = layer.weight
    return [layer.to(first.weight) for layer in head]
