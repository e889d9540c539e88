import pytest
import torch
from torch import nn

from doap.networks.baselines.desdis import DesDis
from doap.networks.network import PatchNetwork
from doap.networks.small.linear_head import Flatten
from doap.networks.small.tiny import Tiny
from support.modules import call_with, convert_to_channels_last


def count_parameters(network: PatchNetwork) -> int:
    return sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize(("dimensions", "parameters"), [(128, 77_448), (256, 77_192)])
def test_fewer_parameters_than_the_smallest_baseline(dimensions: int, parameters: int) -> None:
    assert count_parameters(Tiny(dimensions)) == parameters < count_parameters(DesDis(8))


def test_three_convolutions_and_a_head_normalised_with_dropout_before_it() -> None:
    layers = list(Tiny(128, width=32, dropout=0.3).layers)
    convolutions = [m for m in layers if isinstance(m, nn.Conv2d)]
    assert [(m.out_channels, *m.kernel_size) for m in convolutions] == [(8, 7, 7), (32, 3, 3), (32, 3, 3)]
    assert [m.stride for m in convolutions] == [(2, 2)] * 3
    assert sum(isinstance(m, nn.BatchNorm2d) for m in layers) == 3
    assert [type(m) for m in layers[-3:]] == [nn.Dropout, nn.Linear, nn.BatchNorm1d]
    assert layers[-3].p == 0.3
    assert all(m.bias is None for m in layers if isinstance(m, nn.Conv2d | nn.Linear))


@pytest.mark.parametrize("dimensions", [8, 128, 129, 256, 1024])
def test_the_head_of_many_dimensions_is_no_larger(dimensions: int) -> None:
    head = [m for m in Tiny(dimensions, width=16).layers if isinstance(m, nn.Linear)]
    assert len(head) == (1 if dimensions <= 128 else 2)
    assert sum(m.weight.numel() for m in head) <= 16 * 16 * 128


def test_he_initialisation() -> None:
    torch.manual_seed(0)
    for module in Tiny(128).modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            fan_in = module.weight[0].numel()
            assert module.weight.std().item() == pytest.approx((2 / fan_in) ** 0.5, rel=0.15)


@pytest.mark.parametrize(("dimensions", "width"), [(128, 32), (256, 32), (7, 1), (4096, 8)])
def test_shape(dimensions: int, width: int) -> None:
    assert Tiny(dimensions, width)(torch.rand(3, 1, 32, 32)).shape == (3, dimensions)


@pytest.mark.parametrize("shape", [(3, 1, 31, 32), (3, 3, 32, 32), (3, 32, 32)])
def test_other_inputs_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="Tiny takes"):
        Tiny()(torch.zeros(shape))


def test_a_patch_is_described_alike_alone_and_in_a_batch() -> None:
    network = Tiny(width=8).eval()
    patches = torch.rand(5, 1, 32, 32) * 255
    torch.testing.assert_close(network(patches)[2:3], network(patches[2:3]))


def test_brightness_and_contrast_change_nothing() -> None:
    network = Tiny(width=8).eval()
    patches = torch.rand(5, 1, 32, 32) * 100 + 50
    torch.testing.assert_close(network(patches * 1.7 - 30), network(patches), rtol=1e-3, atol=1e-3)


def test_a_constant_patch_is_finite_with_a_finite_gradient() -> None:
    patches = torch.full((4, 1, 32, 32), 200.0, requires_grad=True)
    outputs = Tiny(width=4).eval()(patches)
    outputs.sum().backward()
    assert torch.isfinite(outputs).all()
    assert patches.grad is not None
    assert torch.isfinite(patches.grad).all()


def test_the_order_of_maps_in_memory_changes_nothing() -> None:
    network = Tiny(16, width=8).eval()
    patches = torch.rand(5, 1, 32, 32) * 255
    expected = network(patches)
    convert_to_channels_last(network)
    torch.testing.assert_close(network(patches.contiguous(memory_format=torch.channels_last)), expected)


def test_maps_in_channels_last_order_are_flattened_without_a_copy() -> None:
    (flatten,) = (m for m in Tiny().layers if isinstance(m, Flatten))
    maps = torch.rand(3, 5, 4, 4)
    ordered = maps.contiguous(memory_format=torch.channels_last)
    assert flatten(ordered).data_ptr() == ordered.data_ptr()
    assert torch.equal(flatten(maps), flatten(ordered))
    assert flatten(maps)[2, (3 * 4 + 1) * 5 + 2] == maps[2, 2, 3, 1]


def test_gradient_in_float64() -> None:
    torch.manual_seed(1)
    network = Tiny(3, width=2, dropout=0.0).double()
    patches = torch.rand(3, 1, 32, 32, dtype=torch.float64)
    weight = network.get_parameter("layers.0.weight")

    def first_layer(values: torch.Tensor) -> torch.Tensor:
        return call_with(network, {"layers.0.weight": values}, patches)

    assert torch.autograd.gradcheck(first_layer, weight.detach().clone().requires_grad_(), atol=1e-5)


def test_an_exported_network_describes_the_same_in_batches_of_any_size() -> None:
    network = Tiny(16, width=8).eval()
    exported = torch.export.export(
        network, (torch.rand(4, 1, 32, 32),), dynamic_shapes=({0: torch.export.Dim("patches")},)
    ).module()
    patches = torch.rand(7, 1, 32, 32) * 255
    torch.testing.assert_close(exported(patches), network(patches))
