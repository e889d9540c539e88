import pytest
import torch
from torch import nn

from doap import DoapError
from doap.networks.architecture import Architecture, shapes_of
from doap.networks.descriptor import Descriptor
from doap.networks.int8 import quantize
from doap.networks.residual import Residual, ResidualBlock
from support.modules import call_with, convert_to_channels_last

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


@pytest.mark.parametrize(("dimensions", "width", "depth"), [(128, 32, 2), (256, 8, 1), (7, 1, 4)])
def test_shape(dimensions: int, width: int, depth: int) -> None:
    assert Residual(dimensions, width, depth=depth)(torch.rand(3, 1, 32, 32)).shape == (3, dimensions)


def test_other_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="Residual takes"):
        Residual(width=1)(torch.zeros(3, 1, 31, 32))


def test_a_patch_is_described_alike_alone_and_in_a_batch() -> None:
    network = Residual(width=8).eval()
    patches = torch.rand(5, 1, 32, 32) * 255
    torch.testing.assert_close(network(patches)[2:3], network(patches[2:3]))


def test_brightness_and_contrast_change_nothing() -> None:
    network = Residual(width=8).eval()
    patches = torch.rand(5, 1, 32, 32) * 100 + 50
    torch.testing.assert_close(network(patches * 1.7 - 30), network(patches), rtol=1e-3, atol=1e-3)


def test_the_order_of_maps_in_memory_changes_nothing() -> None:
    network = Residual(16, width=8).eval()
    patches = torch.rand(5, 1, 32, 32) * 255
    expected = network(patches)
    convert_to_channels_last(network)
    torch.testing.assert_close(
        network(patches.contiguous(memory_format=torch.channels_last)), expected, atol=1e-4, rtol=1e-4
    )


def test_gradient_in_float64() -> None:
    torch.manual_seed(1)
    network = Residual(3, width=2, dropout=0.0, depth=1).double()
    patches = torch.rand(3, 1, 32, 32, dtype=torch.float64)
    weight = network.get_parameter("layers.0.weight")

    def first_layer(values: torch.Tensor) -> torch.Tensor:
        return call_with(network, {"layers.0.weight": values}, patches)

    assert torch.autograd.gradcheck(first_layer, weight.detach().clone().requires_grad_(), atol=1e-4)


def test_there_is_no_int8_form() -> None:
    model = Descriptor(Residual(16, width=4).eval(), "real", 12.0, "deep")
    with pytest.raises(DoapError, match="deep: Residual has no int8 form, only L2Net, Tiny and Windows have") as caught:
        quantize(model, [1.0])
    assert "\n" not in str(caught.value)
