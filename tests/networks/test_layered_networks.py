"""Properties that all networks have which are a sequence of layers on normalised patches of 32x32."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from doap.networks.l2net import L2Net
from doap.networks.network import LayeredNetwork
from doap.networks.residual import Residual
from doap.networks.small.tiny import Tiny
from doap.networks.small.windows import Windows
from support.modules import call_with, convert_to_channels_last

Kind = Callable[..., LayeredNetwork]

EVERY_NETWORK = pytest.mark.parametrize("kind", [L2Net, Residual, Tiny, Windows])


@pytest.mark.parametrize("kind", [L2Net, Tiny, Windows])
def test_he_initialisation(kind: Kind) -> None:
    torch.manual_seed(0)
    for module in kind(128).modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            fan_in = module.weight[0].numel()
            assert module.weight.std().item() == pytest.approx((2 / fan_in) ** 0.5, rel=0.15)


@pytest.mark.parametrize(
    ("kind", "dimensions", "width"),
    [
        *((L2Net, *shape) for shape in ((128, 32), (256, 8), (7, 1))),
        *((Tiny, *shape) for shape in ((128, 32), (256, 32), (7, 1), (4096, 8))),
        *((Windows, *shape) for shape in ((128, 32), (256, 16), (7, 1), (1024, 8))),
        (Residual, 128, 32),
        (partial(Residual, depth=1), 256, 8),
        (partial(Residual, depth=4), 7, 1),
    ],
)
def test_shape(kind: Kind, dimensions: int, width: int) -> None:
    assert kind(dimensions, width)(torch.rand(3, 1, 32, 32)).shape == (3, dimensions)


@EVERY_NETWORK
@pytest.mark.parametrize("shape", [(3, 1, 31, 32), (3, 3, 32, 32), (3, 32, 32)])
def test_other_inputs_are_refused(kind: type[LayeredNetwork], shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=f"{kind.__name__} takes"):
        kind(128, 1)(torch.zeros(shape))


@EVERY_NETWORK
def test_a_patch_is_described_alike_alone_and_in_a_batch(kind: Kind) -> None:
    network = kind(width=8).eval()
    patches = torch.rand(5, 1, 32, 32) * 255
    torch.testing.assert_close(network(patches)[2:3], network(patches[2:3]))


@EVERY_NETWORK
def test_brightness_and_contrast_change_nothing(kind: Kind) -> None:
    network = kind(width=8).eval()
    patches = torch.rand(5, 1, 32, 32) * 100 + 50
    torch.testing.assert_close(network(patches * 1.7 - 30), network(patches), rtol=1e-3, atol=1e-3)


@EVERY_NETWORK
def test_a_constant_patch_is_finite_with_a_finite_gradient(kind: Kind) -> None:
    patches = torch.full((4, 1, 32, 32), 200.0, requires_grad=True)
    outputs = kind(width=4).eval()(patches)
    outputs.sum().backward()
    assert torch.isfinite(outputs).all()
    assert patches.grad is not None
    assert torch.isfinite(patches.grad).all()


@pytest.mark.parametrize(("kind", "rtol", "atol"), [(Residual, 1e-4, 1e-4), (Tiny, None, None), (Windows, None, None)])
def test_the_order_of_maps_in_memory_changes_nothing(kind: Kind, rtol: float | None, atol: float | None) -> None:
    network = kind(16, width=8).eval()
    patches = torch.rand(5, 1, 32, 32) * 255
    expected = network(patches)
    convert_to_channels_last(network)
    actual = network(patches.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("kind", "width", "tolerance"),
    [(L2Net, 1, 1e-5), (partial(Residual, depth=1), 2, 1e-4), (Tiny, 2, 1e-5), (Windows, 2, 1e-5)],
)
def test_gradient_in_float64(kind: Kind, width: int, tolerance: float) -> None:
    torch.manual_seed(1)
    network = kind(3, width=width, dropout=0.0).double()
    patches = torch.rand(3, 1, 32, 32, dtype=torch.float64)
    weight = network.get_parameter("layers.0.weight")

    def first_layer(values: Tensor) -> Tensor:
        return call_with(network, {"layers.0.weight": values}, patches)

    assert torch.autograd.gradcheck(first_layer, weight.detach().clone().requires_grad_(), atol=tolerance)
