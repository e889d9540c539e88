import kornia
import pytest
import torch
from torch import nn

from doap.networks.hynet import FilterResponseNorm, HyNet, ThresholdedLinearUnit
from support.modules import call_with, convert_to_channels_last


def with_random_values(network: HyNet) -> HyNet:
    """Return the network with random scales, biases, thresholds and statistics."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        network(torch.rand(32, 1, 32, 32) * 255)
    return network.eval()


def test_parameter_count() -> None:
    assert sum(p.numel() for p in HyNet(128).parameters()) == 1_336_355


def test_the_same_output_as_kornia() -> None:
    network = with_random_values(HyNet(128))
    reference = kornia.feature.HyNet(pretrained=False).eval()
    reference.load_state_dict(dict(zip(reference.state_dict(), network.state_dict().values(), strict=True)))
    patches = torch.rand(9, 1, 32, 32) * 255
    with torch.no_grad():
        torch.testing.assert_close(nn.functional.normalize(network(patches)), reference(patches), atol=1e-5, rtol=0)


def test_a_response_is_divided_by_its_root_mean_square() -> None:
    layer, maps = FilterResponseNorm(3), torch.randn(2, 3, 5, 5)
    root_mean_square = (maps**2).sum((2, 3)).div(25).sqrt()
    torch.testing.assert_close(layer(maps), maps / root_mean_square[:, :, None, None])
    with torch.no_grad():
        layer.weight.fill_(2.0)
        layer.bias.fill_(0.5)
    torch.testing.assert_close(layer(maps), 2 * maps / root_mean_square[:, :, None, None] + 0.5)


def test_a_threshold_per_channel() -> None:
    layer = ThresholdedLinearUnit(2)
    with torch.no_grad():
        layer.tau.copy_(torch.tensor([-1.0, 0.5]).view(1, 2, 1, 1))
    assert layer(torch.tensor([-3.0, 0.0]).view(1, 2, 1, 1)).flatten().tolist() == [-1.0, 0.5]


def test_initial_values() -> None:
    torch.manual_seed(0)
    network = HyNet(128)
    for layer in network.layers:
        if isinstance(layer, nn.Conv2d):
            assert layer.weight.std().item() == pytest.approx((2 / layer.weight[0].numel()) ** 0.5, rel=0.15)
            assert layer.bias is None or not layer.bias.any()
        elif isinstance(layer, ThresholdedLinearUnit):
            assert (layer.tau == -1).all()


@pytest.mark.parametrize(("dimensions", "width"), [(128, 32), (256, 8), (7, 1)])
def test_shape(dimensions: int, width: int) -> None:
    assert HyNet(dimensions, width)(torch.rand(3, 1, 32, 32)).shape == (3, dimensions)


def test_other_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="HyNet takes"):
        HyNet(width=1)(torch.zeros(3, 1, 31, 32))


def test_a_patch_is_described_alike_alone_and_in_a_batch() -> None:
    network = with_random_values(HyNet(width=8))
    patches = torch.rand(5, 1, 32, 32) * 255
    torch.testing.assert_close(network(patches)[2:3], network(patches[2:3]))


def test_contrast_changes_nothing() -> None:
    network = with_random_values(HyNet(width=8))
    patches = torch.rand(5, 1, 32, 32) * 100
    torch.testing.assert_close(network(patches * 1.7), network(patches), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("grey", [0.0, 200.0])
def test_a_constant_patch_is_finite_with_a_finite_gradient(grey: float) -> None:
    patches = torch.full((4, 1, 32, 32), grey, requires_grad=True)
    outputs = with_random_values(HyNet(width=4))(patches)
    outputs.sum().backward()
    assert torch.isfinite(outputs).all()
    assert patches.grad is not None
    assert torch.isfinite(patches.grad).all()


def test_the_order_of_maps_in_memory_changes_nothing() -> None:
    network = with_random_values(HyNet(16, width=8))
    patches = torch.rand(5, 1, 32, 32) * 255
    expected = network(patches)
    convert_to_channels_last(network)
    torch.testing.assert_close(network(patches.contiguous(memory_format=torch.channels_last)), expected)


@pytest.mark.parametrize("name", ["layers.2.weight", "layers.0.weight", "layers.3.bias", "layers.4.tau"])
def test_gradient_in_float64(name: str) -> None:
    torch.manual_seed(1)
    network = HyNet(3, width=1, dropout=0.0).double()
    patches = torch.rand(2, 1, 32, 32, dtype=torch.float64)
    parameter = network.get_parameter(name)

    def outputs(values: torch.Tensor) -> torch.Tensor:
        return call_with(network, {name: values}, patches)

    assert torch.autograd.gradcheck(outputs, parameter.detach().clone().requires_grad_(), atol=1e-5)


def test_gradient_of_a_normalised_response_in_float64() -> None:
    maps = torch.randn(2, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(FilterResponseNorm(3).double(), maps)


def test_statistics_are_computed_in_float32_under_autocast() -> None:
    network = with_random_values(HyNet(16, width=8))
    patches = torch.rand(5, 1, 32, 32) * 255
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        rounded = network(patches).float()
    with torch.no_grad():
        cosine = nn.functional.cosine_similarity(rounded, network(patches))
    assert cosine.min() > 0.99
