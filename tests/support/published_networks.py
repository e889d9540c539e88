"""Published networks with L2Net's layers, rebuilt from their descriptions, narrow and with random values."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, DIMENSIONS = 4, 16
CHANNELS = [(1, 4, 1), (4, 4, 1), (4, 8, 2), (8, 8, 1), (8, 16, 2), (16, 16, 1)]


class PublishedNetwork(nn.Module):
    """Blocks of layers by name, in any dtype, on patches normalised by a function; gives unit vectors."""

    def __init__(self, blocks: dict[str, list[nn.Module]], normalise: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        for name, layers in blocks.items():
            self.add_module(name, nn.Sequential(*layers))
        self.normalise = normalise

    def forward(self, patches: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        values = self.normalise(patches).to(dtype)
        for block in self.to(dtype).children():
            values = block(values)
        values = values.float()
        return values.flatten(1) / values.flatten(1).square().sum(1, keepdim=True).sqrt()


def divide_by_unbiased_deviation(patches: Tensor) -> Tensor:
    """HardNet: grey values to 0..1, standardised by those of its training set, then per patch."""
    values = (patches / 255 - 0.443728476019) / 0.20197947209
    flat = values.flatten(1)
    mean, deviation = flat.mean(1), (flat - flat.mean(1, keepdim=True)).square().sum(1).div(1023).sqrt() + 1e-7
    return (values - mean[:, None, None, None]) / deviation[:, None, None, None]


def convolutions(bias: bool, affine: bool) -> list[list[nn.Module]]:
    """Six groups of convolution, normalisation and ReLU."""
    return [
        [nn.Conv2d(c, d, 3, stride=s, padding=1, bias=bias), nn.BatchNorm2d(d, affine=affine), nn.ReLU()]
        for c, d, s in CHANNELS
    ]


def flatten(groups: list[list[nn.Module]]) -> list[nn.Module]:
    return [layer for group in groups for layer in group]


def last(dropout: bool = True, bias: bool = False, norm: bool = True) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Dropout(0.1)] if dropout else []
    layers.append(nn.Conv2d(16, DIMENSIONS, 8, bias=bias))
    return [*layers, nn.BatchNorm2d(DIMENSIONS, affine=False)] if norm else layers


def hardnet() -> PublishedNetwork:
    return PublishedNetwork({"features": [*flatten(convolutions(False, False)), *last()]}, divide_by_unbiased_deviation)


def hardnet_ps() -> PublishedNetwork:
    layers = [*flatten(convolutions(True, True)), *last(dropout=False, bias=True, norm=False)]
    return PublishedNetwork({"features": layers}, divide_by_unbiased_deviation)


def sosnet() -> PublishedNetwork:
    layers = [nn.InstanceNorm2d(1, eps=1e-5), *flatten(convolutions(False, False)), *last()]
    return PublishedNetwork({"layers": layers}, nn.Identity())


def sosnet_of_hynet() -> PublishedNetwork:
    groups = convolutions(False, False)
    groups[0].insert(0, nn.InstanceNorm2d(1))
    return PublishedNetwork(dict(zip(block_names(), [*groups, last()], strict=True)), nn.Identity())


class RootMeanSquare(nn.Module):
    """Filter response normalisation, as HyNet's description has it, with tensors of the published names."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.register_buffer("eps", torch.tensor([1e-6]))

    def forward(self, maps: Tensor) -> Tensor:
        root_mean_square = (F.avg_pool2d(maps**2, maps.shape[2:]) + torch.abs(self.get_buffer("eps"))) ** 0.5
        return self.weight * (maps / root_mean_square) + self.bias


class Threshold(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.tau = nn.Parameter(-torch.ones(1, channels, 1, 1))

    def forward(self, maps: Tensor) -> Tensor:
        return F.relu(maps - self.tau) + self.tau


def hynet() -> PublishedNetwork:
    groups: list[list[nn.Module]] = [
        [nn.Conv2d(c, d, 3, stride=s, padding=1), RootMeanSquare(d), Threshold(d)] for c, d, s in CHANNELS
    ]
    groups[0][:0] = [RootMeanSquare(1), Threshold(1)]
    return PublishedNetwork(dict(zip(block_names(), [*groups, last()], strict=True)), nn.Identity())


def block_names() -> list[str]:
    return [f"layer{number}" for number in range(1, 8)]


def randomise(network: PublishedNetwork) -> PublishedNetwork:
    """Give all parameters and statistics random values, and return the network in eval mode."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        for _ in range(20):
            network(torch.rand(32, 1, 32, 32) * 255)
        for name, buffer in network.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(0.1 * torch.randn_like(buffer))
    return network.eval()


PUBLISHED: dict[str, Callable[[], PublishedNetwork]] = {
    "HardNet": hardnet,
    "HardNet-PS": hardnet_ps,
    "SOSNet": sosnet,
    "SOSNet or HardNet of HyNet's code": sosnet_of_hynet,
    "HyNet": hynet,
}
