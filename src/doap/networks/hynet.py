"""HyNet: the convolutions of L2Net with filter response normalisation (Tian et al., NeurIPS 2020)."""

import torch
from torch import Tensor, nn

from doap.networks.l2net import INPUT_SIZE
from doap.networks.network import PatchNetwork, initialise


class FilterResponseNorm(nn.Module):
    """Divide each channel of each patch by its root mean square, then scale and shift it (Singh and Krishnan 2020).

    y = weight · x / sqrt(mean(x²) + |eps|) + bias, with the mean over the map.

    Args:
        channels: Number of channels, C.
    """

    eps: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.register_buffer("eps", torch.tensor([1e-6]))

    def forward(self, maps: Tensor) -> Tensor:
        """Normalise (N, C, H, W) maps."""
        precision = torch.promote_types(maps.dtype, torch.float32)
        power = maps.to(precision).square().mean((2, 3), keepdim=True)  # squares overflow in float16
        scale = self.weight * torch.rsqrt(power + self.eps.abs())
        return torch.addcmul(self.bias.to(maps.dtype), maps, scale.to(maps.dtype))


class ThresholdedLinearUnit(nn.Module):
    """max(x, tau), with a learned threshold tau per channel.

    Args:
        channels: Number of channels, C.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.tau = nn.Parameter(torch.full((1, channels, 1, 1), -1.0))

    def forward(self, maps: Tensor) -> Tensor:
        """Apply the threshold to (N, C, H, W) maps."""
        return torch.maximum(maps, self.tau.to(maps.dtype))


class HyNet(PatchNetwork):
    """Six convolutions with filter response normalisation and thresholded linear units, and L2Net's last layer.

    The input is normalised in the same way: divided by its root mean square, not centred. Brightness therefore matters,
    contrast does not. The last convolution covers the whole 8x8 map, has dropout before it and batch normalisation
    without learned scale or shift after it. The convolutions before it have biases. Initialised after He et al., with
    scales 1, biases 0 and thresholds -1. 1,336,355 parameters at 128 dimensions and width 32.

    Args:
        dimensions: Length of the output: dimensions of the descriptor, or its bits.
        width: Channels of the first layer; the other layers have 1, 2 or 4 times as many.
        dropout: Dropout probability before the last layer.
    """

    def __init__(self, dimensions: int = 128, width: int = 32, dropout: float = 0.1) -> None:
        super().__init__(dimensions, INPUT_SIZE)
        layers: list[nn.Module] = [FilterResponseNorm(1), ThresholdedLinearUnit(1)]
        channels = 1
        for factor, stride in ((1, 1), (1, 1), (2, 2), (2, 1), (4, 2), (4, 1)):
            out_channels = factor * width
            layers += [
                nn.Conv2d(channels, out_channels, 3, stride=stride, padding=1),
                FilterResponseNorm(out_channels),
                ThresholdedLinearUnit(out_channels),
            ]
            channels = out_channels
        layers += [
            nn.Dropout(dropout),
            nn.Conv2d(channels, dimensions, INPUT_SIZE // 4, bias=False),
            nn.BatchNorm2d(dimensions, affine=False),
        ]
        self.layers = nn.Sequential(*layers)
        initialise(self)
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d) and layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(self, patches: Tensor) -> Tensor:
        """Compute (N, dimensions) raw activations of (N, 1, 32, 32) float patches, of any contrast."""
        self.check(patches)
        normalisation, threshold, *layers = self.layers
        values: Tensor = threshold(normalisation(patches)).to(self.dtype)
        for layer in layers:
            values = layer(values)
        return values.flatten(1)
