"""Feature maps against forward hooks on the batch normalisations, which the networks do not use."""

import pytest
import torch
from torch import Tensor, nn

from doap.networks.architecture import Architecture, build_network
from doap.networks.centre_surround import CentreSurround
from doap.networks.feature_maps import FeatureMapNetwork
from doap.networks.hynet import HyNet
from doap.networks.network import PatchNetwork
from doap.networks.spatial_transformer import TransformedNetwork
from support.modules import call_with

ARCHITECTURES: dict[str, dict[str, object]] = {
    "l2net": {},
    "l2net-mean": {"network": "l2net-mean"},
    "residual": {"network": "residual"},
    "tiny": {"network": "tiny"},
    "windows": {"network": "windows"},
    "centre-surround": {"network": "cs-l2net"},
    "centre-surround-mean": {"network": "cs-l2net-mean"},
    "transformer": {"transformer": True},
}


def make_network(case: str) -> PatchNetwork:
    network = build_network(Architecture.model_validate({"dimensions": 6, "width": 4, **ARCHITECTURES[case]}))
    if "mean" in dict(network.named_buffers()):
        network.get_buffer("mean").uniform_(0, 50)
    return network


def normalisations_by_hand(network: PatchNetwork) -> list[nn.Module]:
    """Return the first and the last batch normalisation of each tower."""
    if isinstance(network, CentreSurround):
        return normalisations_by_hand(network.centre) + normalisations_by_hand(network.surround)
    if isinstance(network, TransformedNetwork):
        return normalisations_by_hand(network.network)
    found = [module for module in network.modules() if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)]
    return [found[0], found[-1]]


def patches_for(network: PatchNetwork, count: int) -> Tensor:
    return torch.rand(count, 1, network.input_size, network.input_size) * 255


@pytest.mark.parametrize("case", ARCHITECTURES)
@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
def test_the_maps_are_those_after_the_first_and_the_last_normalisation(case: str, training: bool) -> None:
    network = make_network(case).train(training)
    patches = patches_for(network, 5)
    torch.manual_seed(0)
    expected_activations = network(patches)
    expected: list[Tensor] = []
    for module in normalisations_by_hand(network):
        module.register_forward_hook(lambda _module, _inputs, output: expected.append(output.clone()))
    torch.manual_seed(0)
    activations, maps = network.forward_with_maps(patches)
    torch.testing.assert_close(activations, expected_activations)
    torch.testing.assert_close(maps, expected)
    assert (maps[0] < 0).any()  # before the ReLU
    packed = FeatureMapNetwork(network)
    activations, flat = packed.split(torch.cat([activations, *(values.flatten(1) for values in maps)], 1))
    assert activations.shape == (5, 6)
    torch.testing.assert_close(list(flat), [values.flatten(1) for values in expected[: len(maps)]])


@pytest.mark.parametrize("case", ARCHITECTURES)
def test_rows_are_activations_followed_by_maps_and_counting_changes_nothing(case: str) -> None:
    network = make_network(case).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    packed = FeatureMapNetwork(network)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    network.eval()
    patches = patches_for(network, 3)
    activations, maps = packed.split(packed(patches))
    torch.testing.assert_close(activations, network(patches))
    assert len(maps) == (4 if case.startswith("centre-surround") else 2)
    assert sum(values.shape[1] for values in maps[1::2]) == 6
    if case != "centre-surround-mean":  # its activations are normalised
        torch.testing.assert_close(torch.cat(list(maps[1::2]), 1), activations)


def test_the_gradient_reaches_the_layers_before_a_map() -> None:
    network = make_network("l2net").double().train()
    patches = patches_for(network, 4).double()
    packed = FeatureMapNetwork(network)
    weight = network.get_parameter("layers.0.weight").detach().clone().requires_grad_()
    names = {f"network.{name}": value for name, value in network.state_dict().items() if "running" in name}

    def first_map(raw: Tensor) -> Tensor:
        rows = call_with(packed, {**names, "network.layers.0.weight": raw}, patches)
        return packed.split(rows)[1][0][:, ::157]

    assert torch.autograd.gradcheck(first_map, weight, eps=1e-6, atol=1e-5)


def test_a_compiled_network_gives_the_same_rows() -> None:
    packed = FeatureMapNetwork(make_network("l2net")).eval()
    patches = patches_for(packed.network, 3)
    compiled = torch.compile(packed, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(patches), packed(patches))


def test_a_network_without_batch_normalised_maps_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="HyNet does not batch normalise its first feature map"):
        FeatureMapNetwork(HyNet(6, 2))
