"""Activations and feature maps of a network in one tensor, for objectives that compare feature maps."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from doap.networks.network import PatchNetwork


class FeatureMapNetwork(nn.Module):
    """A network whose feature maps follow its activations, flattened, in the same rows.

    Chunks of a batch, compiled networks and autocast treat such rows like activations.

    Args:
        network: A network with `forward_with_maps`; its parameters are shared.

    Example:
        >>> import torch
        >>> from doap.networks.l2net import L2Net
        >>> network = FeatureMapNetwork(L2Net(dimensions=8, width=2))
        >>> activations, maps = network.split(network(torch.rand(5, 1, 32, 32)))
        >>> activations.shape, [values.shape for values in maps]
        (torch.Size([5, 8]), [torch.Size([5, 2048]), torch.Size([5, 8])])
    """

    def __init__(self, network: PatchNetwork) -> None:
        super().__init__()
        self.network = network
        self.columns = [network.dimensions, *_count_values(network)]

    def forward(self, patches: Tensor) -> Tensor:
        """Compute (N, dimensions + values of all maps) of (N, 1, S, S) patches."""
        activations, maps = self.network.forward_with_maps(patches)
        return torch.cat([activations, *(values.flatten(1) for values in maps)], 1)

    def split(self, rows: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        """Split the output of `forward` into (N, dimensions) activations and (N, values) per feature map."""
        activations, *maps = torch.split(rows, self.columns, dim=1)
        return activations, maps


@torch.no_grad()
def _count_values(network: PatchNetwork) -> list[int]:
    """Return the number of values of each feature map of a patch."""
    parameter, was_training = next(network.parameters()), network.training
    patch = parameter.new_zeros(1, 1, network.input_size, network.input_size)
    _, maps = network.eval().forward_with_maps(patch)  # in eval mode, so that running statistics do not change
    network.train(was_training)
    return [values.numel() for values in maps]
