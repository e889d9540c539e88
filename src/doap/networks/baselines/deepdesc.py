"""DeepDesc (Simo-Serra et al., ICCV 2015)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from doap.networks.network import PatchNetwork


class DeepDesc(PatchNetwork):
    """Three convolutions with tanh, L2-pooling and subtractive normalisation.

    Each pixel is standardised with the mean and deviation of the training set, which are part of the weights. The
    network was trained for plain L2 distances. With the unit vectors of `Descriptor` it ranks by angle instead, so the
    length of the vector, which grows with the contrast of the patch, is ignored.
    """

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__(128, 64)
        self.register_buffer("mean", torch.zeros(1, 64, 64))
        self.register_buffer("std", torch.ones(1, 64, 64))
        self.conv0 = nn.Conv2d(1, 32, 7)
        self.subtract0 = SubtractiveNormalisation()
        self.conv1 = nn.Conv2d(32, 64, 6)
        self.subtract1 = SubtractiveNormalisation()
        self.conv2 = nn.Conv2d(64, 128, 5)

    def forward(self, patches: Tensor) -> Tensor:
        """Compute (N, 128) activations of (N, 1, 64, 64) float patches, grey values in 0..255."""
        self.check(patches)
        values = _pool(torch.tanh(self.conv0(((patches - self.mean) / self.std).to(self.dtype))), 2)
        values = _pool(torch.tanh(self.conv1(self.subtract0(values))), 3)
        values = _pool(torch.tanh(self.conv2(self.subtract1(values))), 4)
        return values.flatten(1)


class SubtractiveNormalisation(nn.Module):
    """Subtraction of the weighted mean of the neighbourhood, taken over all channels: one mean map for all of them.

    The kernel is part of the weights: a Gaussian that sums to one over its window and all channels. At the border the
    mean is over the pixels inside.
    """

    kernel: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kernel", torch.ones(5, 5))

    def forward(self, values: Tensor) -> Tensor:
        """Normalise (N, C, H, W) values."""
        kernel = self.kernel[None, None].to(values.dtype)
        total = F.conv2d(values.sum(1, keepdim=True), kernel, padding=2)
        weight = F.conv2d(torch.full_like(values[:1, :1], values.shape[1]), kernel, padding=2)
        return values - total / weight


def _pool(values: Tensor, size: int) -> Tensor:
    """Return the L2 norm of each window."""
    total = F.avg_pool2d(values.square(), size) * size**2
    return total.clamp(min=1e-12).sqrt()  # the gradient of the root is infinite at 0
