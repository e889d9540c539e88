import pytest
import torch
from torch import nn

from doap.networks.baselines.desdis import DesDis
from doap.networks.network import PatchNetwork
from doap.networks.small.linear_head import Flatten
from doap.networks.small.tiny import Tiny


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


def test_maps_in_channels_last_order_are_flattened_without_a_copy() -> None:
    (flatten,) = (m for m in Tiny().layers if isinstance(m, Flatten))
    maps = torch.rand(3, 5, 4, 4)
    ordered = maps.contiguous(memory_format=torch.channels_last)
    assert flatten(ordered).data_ptr() == ordered.data_ptr()
    assert torch.equal(flatten(maps), flatten(ordered))
    assert flatten(maps)[2, (3 * 4 + 1) * 5 + 2] == maps[2, 2, 3, 1]


def test_an_exported_network_describes_the_same_in_batches_of_any_size() -> None:
    network = Tiny(16, width=8).eval()
    exported = torch.export.export(
        network, (torch.rand(4, 1, 32, 32),), dynamic_shapes=({0: torch.export.Dim("patches")},)
    ).module()
    patches = torch.rand(7, 1, 32, 32) * 255
    torch.testing.assert_close(exported(patches), network(patches))
