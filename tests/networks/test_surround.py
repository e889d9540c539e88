"""Networks with surroundings: the formula by hand, and what holds for all networks."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from doap.networks.architecture import Architecture, build_network
from doap.networks.descriptor import Descriptor, resize_patches, to_input
from doap.networks.feature_maps import FeatureMapNetwork
from doap.networks.inference import optimize_for_inference
from doap.networks.int8 import calibrate, quantize
from doap.networks.l2net import L2Net
from doap.networks.network import LayeredNetwork, StackExtents, halve, split_extents

NETWORKS = [Architecture(width=4, dimensions=16, surround=1),
            Architecture(width=4, dimensions=16, surround=2),
            Architecture(network="residual", width=4, dimensions=16, surround=1)]  # fmt: skip
EVERY_NETWORK = pytest.mark.parametrize("architecture", NETWORKS, ids=lambda a: f"{a.network}-{a.surround}")


def build(architecture: Architecture) -> LayeredNetwork:
    torch.manual_seed(0)
    network = build_network(architecture)
    assert isinstance(network, LayeredNetwork)
    network(torch.rand(16, 1, network.input_size, network.input_size) * 255)  # statistics of batch normalisation
    return network.eval()


def describe_by_hand(network: LayeredNetwork, patches: Tensor) -> Tensor:
    """Compute the sum of the products of the last layer with the maps of the centre and of its surroundings."""
    layers = list(network.layers)
    end = next(index for index, layer in enumerate(layers) if isinstance(layer, StackExtents))
    *_, last, normalisation = layers
    assert isinstance(last, nn.Conv2d)
    parts = [patches[:, :, 16:48, 16:48], F.interpolate(patches, scale_factor=0.5, mode="area")]
    if network.input_size == 128:
        middle = F.interpolate(patches[:, :, 32:96, 32:96], scale_factor=0.5, mode="area")
        parts = [patches[:, :, 48:80, 48:80], middle, F.interpolate(patches, scale_factor=0.25, mode="area")]
    sums = torch.zeros(())
    for part, weight in zip(parts, last.weight.tensor_split(len(parts), dim=2), strict=True):
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
    size = network.input_size
    patches = torch.rand(5, 1, size, size, dtype=torch.float64) * 255
    torch.testing.assert_close(network(patches), describe_by_hand(network, patches), atol=1e-6, rtol=1e-6)
    with pytest.raises(ValueError, match=f"{size}, {size}"):
        network(torch.rand(2, 1, 32, 32))


def test_parts_of_a_patch_follow_each_other() -> None:
    patches = torch.arange(2 * 64 * 64.0).view(2, 1, 64, 64)
    parts = split_extents(patches, 1)
    assert parts.shape == (4, 1, 32, 32)
    assert (parts[2] == patches[1, :, 16:48, 16:48]).all()
    assert parts[3, 0, 3, 5] == patches[1, 0, 6:8, 10:12].mean()
    assert split_extents(patches, 0) is patches
    three = split_extents(patches, 2)
    assert three.shape == (6, 1, 16, 16)
    assert (three[3] == patches[1, :, 24:40, 24:40]).all()
    assert three[4, 0, 3, 5] == patches[1, 0, 22:24, 26:28].mean()
    assert three[5, 0, 3, 5] == patches[1, 0, 12:16, 20:24].mean()


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
    for parts in (2, 3):
        stacked = StackExtents(parts)(maps)
        assert stacked.data_ptr() == maps.data_ptr()
        for number in range(6 // parts):
            assert (stacked[number] == torch.cat(list(maps[parts * number : parts * (number + 1)]), 1)).all()


@EVERY_NETWORK
def test_the_gradient_is_that_of_differences(architecture: Architecture) -> None:
    network = build(architecture).double()
    size = network.input_size
    patches = (torch.rand(1, 1, size, size, dtype=torch.float64) * 255).requires_grad_()
    weights = torch.randn(16, dtype=torch.float64)
    (network(patches) @ weights).sum().backward()
    assert patches.grad is not None
    for row, column in ((2, 3), (size // 2 - 2, size // 2 - 2), (size - 4, size - 24)):  # the second is in all parts
        step = torch.zeros_like(patches)
        step[0, 0, row, column] = 1e-4
        with torch.no_grad():
            difference = ((network(patches + step) - network(patches - step)) @ weights).item() / 2e-4
        assert patches.grad[0, 0, row, column].item() == pytest.approx(difference, rel=1e-3, abs=1e-9)


@EVERY_NETWORK
def test_a_descriptor_does_not_depend_on_its_batch(architecture: Architecture) -> None:
    network = build(architecture)
    patches = torch.rand(4, 1, network.input_size, network.input_size) * 255
    torch.testing.assert_close(network(patches)[2:3], network(patches[2:3]), atol=1e-5, rtol=1e-5)


@EVERY_NETWORK
def test_the_inference_form_computes_the_same(architecture: Architecture) -> None:
    model = Descriptor(build(architecture), "real", 24.0, "surround").eval()
    fast = optimize_for_inference(copy.deepcopy(model), torch.float32)
    assert fast.network.surroundings == architecture.surround
    patches = torch.rand(6, model.input_size, model.input_size) * 255
    with torch.no_grad():
        torch.testing.assert_close(fast(patches), model(patches), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("surround", [1, 2])
def test_the_int8_form_is_close(surround: int) -> None:
    torch.manual_seed(1)
    model = Descriptor(build(Architecture(width=8, dimensions=32, surround=surround)), "real", 24.0, "surround").eval()
    patches = torch.randint(0, 256, (100, 8, 8), dtype=torch.uint8)
    patches = F.interpolate(patches[:, None].float(), size=model.input_size, mode="bilinear")[:, 0].to(torch.uint8)
    integers = quantize(model, calibrate(model, patches.numpy()))
    with torch.no_grad():
        assert (integers(patches) * model(patches)).sum(1).min() > 0.98


def test_feature_maps_have_one_row_per_patch() -> None:
    network = L2Net(8, width=2, surroundings=1)
    activations, maps = FeatureMapNetwork(network).split(FeatureMapNetwork(network)(torch.rand(5, 1, 64, 64)))
    assert activations.shape == (5, 8)
    assert [values.shape for values in maps] == [(5, 2 * 2048), (5, 8)]


@pytest.mark.parametrize("network", ["tiny", "windows", "hynet", "cs-l2net", "l2net-mean"])
def test_other_networks_have_no_surroundings(network: str) -> None:
    with pytest.raises(ValueError, match="surround=1 needs network=l2net or residual"):
        Architecture.model_validate({"network": network, "surround": 1})


def test_no_transformer_precedes_a_network_with_surroundings() -> None:
    with pytest.raises(ValueError, match="surround=2 reads 128x128 patches, but a transformer outputs 32x32"):
        Architecture(surround=2, transformer=True)


def test_true_is_one_larger_extent() -> None:
    """Cards and recipes of models of two extents were written with it."""
    architecture = Architecture.model_validate_json('{"surround": true}')
    assert architecture == Architecture(surround=1)
    assert architecture.model_dump_json() == Architecture(surround=1).model_dump_json()
    with pytest.raises(ValueError, match="less than or equal to 2"):
        Architecture(surround=3)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64])
def test_small_patches_are_padded_only_for_three_extents(dtype: torch.dtype) -> None:
    three, two = L2Net(16, width=4, surroundings=2), L2Net(16, width=4, surroundings=1)
    for side, is_padded in ((32, True), (64, True), (95, True), (96, False), (128, False), (200, False)):
        patches = (torch.rand(3, side, side) * 255).to(dtype)
        values = to_input(patches, three)
        assert values.shape == (3, 1, 128, 128)
        if not is_padded:
            assert torch.equal(values, resize_patches(patches, 128))
            continue
        inner = resize_patches(patches, 64)
        assert torch.equal(values[:, :, 32:96, 32:96], inner)
        border = torch.ones(128, 128, dtype=torch.bool)
        border[32:96, 32:96] = False
        assert torch.equal(values[:, 0, border], inner.mean((2, 3)).expand(-1, 128**2 - 64**2))
        assert torch.equal(to_input(patches, two), inner)


def test_a_model_describes_small_patches_as_padded_ones() -> None:
    network = build(Architecture(width=4, dimensions=16, surround=2))
    model = Descriptor(network, "real", 48.0, "three")
    patches = (torch.rand(6, 65, 65) * 255).round().to(torch.uint8)
    expected = F.normalize(network(to_input(patches, network)), dim=1)
    torch.testing.assert_close(model(patches), expected)
    torch.testing.assert_close(optimize_for_inference(model, torch.float32)(patches), expected, atol=1e-5, rtol=0)
    assert (model(patches) - F.normalize(network(resize_patches(patches, 128)), dim=1)).abs().max() > 0.01
