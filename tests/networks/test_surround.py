"""Networks with surroundings: the formula by hand, and what holds for all networks."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from doap.networks.architecture import Architecture, build_network
from doap.networks.descriptor import Descriptor
from doap.networks.feature_maps import FeatureMapNetwork
from doap.networks.inference import optimize_for_inference
from doap.networks.int8 import calibrate, quantize
from doap.networks.l2net import L2Net
from doap.networks.network import LayeredNetwork, StackExtents, halve, split_extents

NETWORKS = [Architecture(width=4, dimensions=16, surround=True),
            Architecture(network="residual", width=4, dimensions=16, surround=True)]  # fmt: skip
EVERY_NETWORK = pytest.mark.parametrize("architecture", NETWORKS, ids=lambda a: a.network)


def build(architecture: Architecture) -> LayeredNetwork:
    torch.manual_seed(0)
    network = build_network(architecture)
    assert isinstance(network, LayeredNetwork)
    network(torch.rand(16, 1, 64, 64) * 255)  # statistics of batch normalisation
    return network.eval()


def describe_by_hand(network: LayeredNetwork, patches: Tensor) -> Tensor:
    """Compute the sum of the products of the last layer with the map of the centre and with that of the whole."""
    layers = list(network.layers)
    end = next(index for index, layer in enumerate(layers) if isinstance(layer, StackExtents))
    *_, last, normalisation = layers
    assert isinstance(last, nn.Conv2d)
    halves = last.weight.tensor_split(2, dim=2)
    parts = patches[:, :, 16:48, 16:48], F.interpolate(patches, scale_factor=0.5, mode="area")
    sums = torch.zeros(())
    for part, weight in zip(parts, halves, strict=True):
        mean, deviation = part.mean((2, 3), keepdim=True), part.std((2, 3), keepdim=True, unbiased=False)
        values = (part - mean) / deviation
        for layer in layers[:end]:
            values = layer(values)
        sums = sums + torch.einsum("nchw,ochw->no", values, weight)
    outputs: Tensor = normalisation(sums[:, :, None, None])
    return outputs.flatten(1)


@EVERY_NETWORK
def test_both_parts_are_read_by_the_same_layers(architecture: Architecture) -> None:
    network = build(architecture).double()
    patches = torch.rand(5, 1, 64, 64, dtype=torch.float64) * 255
    torch.testing.assert_close(network(patches), describe_by_hand(network, patches), atol=1e-6, rtol=1e-6)
    with pytest.raises(ValueError, match="64, 64"):
        network(torch.rand(2, 1, 32, 32))


def test_parts_of_a_patch_follow_each_other() -> None:
    patches = torch.arange(2 * 64 * 64.0).view(2, 1, 64, 64)
    parts = split_extents(patches)
    assert parts.shape == (4, 1, 32, 32)
    assert (parts[2] == patches[1, :, 16:48, 16:48]).all()
    assert parts[3, 0, 3, 5] == patches[1, 0, 6:8, 10:12].mean()


def test_halved_patches_are_those_of_torchs_pooling() -> None:
    patches = torch.rand(3, 1, 8, 12, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(3, 1, 4, 6, dtype=torch.float64)
    expected = F.avg_pool2d(patches, 2)
    torch.testing.assert_close(halve(patches), expected)
    torch.testing.assert_close(
        torch.autograd.grad((halve(patches) * weights).sum(), patches),
        torch.autograd.grad((expected * weights).sum(), patches),
    )
    grey = torch.randint(0, 256, (5, 1, 64, 64)).float()  # sums of grey values are exact
    assert torch.equal(halve(grey), F.avg_pool2d(grey, 2))


def test_maps_are_stacked_without_a_copy() -> None:
    maps = torch.rand(6, 5, 8, 8).to(memory_format=torch.channels_last)
    stacked = StackExtents()(maps)
    assert stacked.data_ptr() == maps.data_ptr()
    for number in range(3):
        assert (stacked[number] == torch.cat([maps[2 * number], maps[2 * number + 1]], 1)).all()


@EVERY_NETWORK
def test_the_gradient_is_that_of_differences(architecture: Architecture) -> None:
    network = build(architecture).double()
    patches = (torch.rand(1, 1, 64, 64, dtype=torch.float64) * 255).requires_grad_()
    weights = torch.randn(16, dtype=torch.float64)
    (network(patches) @ weights).sum().backward()
    assert patches.grad is not None
    for row, column in ((2, 3), (30, 30), (60, 40)):  # the first and the last are in the surroundings only
        step = torch.zeros_like(patches)
        step[0, 0, row, column] = 1e-4
        with torch.no_grad():
            difference = ((network(patches + step) - network(patches - step)) @ weights).item() / 2e-4
        assert patches.grad[0, 0, row, column].item() == pytest.approx(difference, rel=1e-3, abs=1e-9)


@EVERY_NETWORK
def test_a_descriptor_does_not_depend_on_its_batch(architecture: Architecture) -> None:
    network = build(architecture)
    patches = torch.rand(4, 1, 64, 64) * 255
    torch.testing.assert_close(network(patches)[2:3], network(patches[2:3]), atol=1e-5, rtol=1e-5)


@EVERY_NETWORK
def test_the_inference_form_computes_the_same(architecture: Architecture) -> None:
    model = Descriptor(build(architecture), "real", 24.0, "surround").eval()
    fast = optimize_for_inference(copy.deepcopy(model), torch.float32)
    assert fast.network.two_extents
    patches = torch.rand(6, 64, 64) * 255
    with torch.no_grad():
        torch.testing.assert_close(fast(patches), model(patches), atol=1e-5, rtol=1e-4)


def test_the_int8_form_is_close() -> None:
    torch.manual_seed(1)
    model = Descriptor(build(Architecture(width=8, dimensions=32, surround=True)), "real", 24.0, "surround").eval()
    patches = torch.randint(0, 256, (150, 8, 8), dtype=torch.uint8)
    patches = F.interpolate(patches[:, None].float(), size=64, mode="bilinear")[:, 0].to(torch.uint8)
    integers = quantize(model, calibrate(model, patches.numpy()))
    with torch.no_grad():
        assert (integers(patches) * model(patches)).sum(1).min() > 0.98


def test_feature_maps_have_one_row_per_patch() -> None:
    network = L2Net(8, width=2, surround=True)
    activations, maps = FeatureMapNetwork(network).split(FeatureMapNetwork(network)(torch.rand(5, 1, 64, 64)))
    assert activations.shape == (5, 8)
    assert [values.shape for values in maps] == [(5, 2 * 2048), (5, 8)]


@pytest.mark.parametrize("network", ["tiny", "windows", "hynet", "cs-l2net", "l2net-mean"])
def test_other_networks_have_no_surroundings(network: str) -> None:
    with pytest.raises(ValueError, match="surround=true needs network=l2net or residual"):
        Architecture.model_validate({"network": network, "surround": True})


def test_no_transformer_precedes_a_network_with_surroundings() -> None:
    with pytest.raises(ValueError, match="a transformer outputs 32x32"):
        Architecture(surround=True, transformer=True)
