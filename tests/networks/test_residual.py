import torch
from torch import nn

from doap.networks.architecture import Architecture, shapes_of
from doap.networks.residual import Residual, ResidualBlock

MAX_PARAMETERS = 9_700_000  # 40 MB of float32, with the card


def test_parameter_count() -> None:
    network = Residual(128, width=64, depth=2)
    assert sum(p.numel() for p in network.parameters()) == 5_452_352 < MAX_PARAMETERS
    shapes = shapes_of(Architecture(network="residual", width=64))
    assert shapes == {name: tuple(value.shape) for name, value in network.state_dict().items()}


def _kind(module: nn.Module) -> str:
    return "Conv2d" if isinstance(module, nn.Conv2d) else type(module).__name__


def test_layers_and_sizes_of_maps() -> None:
    network = Residual(128, width=8, dropout=0.3, depth=3)
    sizes: list[tuple[str, int, int]] = []
    for layer in network.layers:
        layer.register_forward_hook(
            lambda module, _inputs, maps: sizes.append((_kind(module), maps.shape[1], maps.shape[2]))
        )
    network(torch.rand(2, 1, 32, 32))
    kept = [size for size in sizes if size[0] in ("Conv2d", "ResidualBlock")]
    assert kept == [
        ("Conv2d", 8, 32),
        ("Conv2d", 8, 32),
        ("Conv2d", 16, 16),
        *[("ResidualBlock", 16, 16)] * 3,
        ("Conv2d", 32, 8),
        *[("ResidualBlock", 32, 8)] * 3,
        ("Conv2d", 128, 1),
    ]
    assert [_kind(m) for m in list(network.layers)[-3:]] == ["Dropout", "Conv2d", "BatchNorm2d"]
    assert [m.p for m in network.modules() if isinstance(m, nn.Dropout)] == [0.3]


def test_every_convolution_is_normalised_without_learned_scale_bias_or_shift() -> None:
    network = Residual(16, width=4)
    modules = [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d)]
    for convolution, normalisation in zip(modules[::2], modules[1::2], strict=True):
        assert isinstance(convolution, nn.Conv2d)
        assert isinstance(normalisation, nn.BatchNorm2d)
        assert convolution.bias is None
        assert not normalisation.affine
    # so that the scale of weights changes nothing
    patches = torch.rand(8, 1, 32, 32) * 255
    torch.manual_seed(0)
    expected = network(patches)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(3.0)
    torch.manual_seed(0)
    torch.testing.assert_close(network(patches), expected, atol=1e-3, rtol=1e-3)


def test_a_block_adds_its_normalised_branch_to_its_input() -> None:
    block, maps = ResidualBlock(3), torch.randn(4, 3, 8, 8)
    first, second = (m for m in block.modules() if isinstance(m, nn.Conv2d))

    def normalised(values: torch.Tensor) -> torch.Tensor:
        return (values - values.mean((0, 2, 3), keepdim=True)) / values.std((0, 2, 3), keepdim=True, correction=0)

    inner = normalised(first(maps)).clamp(min=0)
    expected = (maps + normalised(second(inner))).clamp(min=0)
    before = maps.clone()
    torch.testing.assert_close(block(maps), expected, atol=1e-3, rtol=1e-3)
    assert torch.equal(maps, before)
