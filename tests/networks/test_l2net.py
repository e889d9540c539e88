import torch
from torch import nn

from doap.networks.l2net import L2Net, MeanL2Net
from doap.networks.network import normalise


def test_the_papers_parameter_count() -> None:
    assert sum(p.numel() for p in L2Net(128).parameters()) == 1_334_560


def test_seven_convolutions_normalised_with_dropout_before_the_last() -> None:
    layers = list(L2Net(128, dropout=0.3).layers)
    convolutions = [m for m in layers if isinstance(m, nn.Conv2d)]
    assert [m.out_channels for m in convolutions] == [32, 32, 64, 64, 128, 128, 128]
    assert [m.stride[0] for m in convolutions] == [1, 1, 2, 1, 2, 1, 1]
    assert sum(isinstance(m, nn.BatchNorm2d) for m in layers) == 7
    before_last = layers[layers.index(convolutions[-1]) - 1]
    assert isinstance(before_last, nn.Dropout)
    assert before_last.p == 0.3


def test_a_constant_patch_is_normalised_to_0() -> None:
    assert (normalise(torch.full((4, 1, 32, 32), 200.0)) == 0).all()


def test_normalisation_is_per_patch() -> None:
    normal = normalise(torch.rand(6, 1, 32, 32) * torch.arange(1, 7).view(6, 1, 1, 1) * 20)
    torch.testing.assert_close(normal.mean((1, 2, 3)), torch.zeros(6), atol=1e-5, rtol=0)
    torch.testing.assert_close(normal.std((1, 2, 3), correction=0), torch.ones(6))


def test_a_stored_mean_patch_is_subtracted_before_the_normalisation() -> None:
    network, plain = MeanL2Net(16, width=4).eval(), L2Net(16, width=4).eval()
    plain.load_state_dict({name: value for name, value in network.state_dict().items() if name != "mean"})
    patches = torch.rand(3, 1, 32, 32) * 255
    torch.testing.assert_close(network(patches), plain(patches))
    network.mean.copy_(torch.rand(1, 1, 32, 32) * 100)
    torch.testing.assert_close(network(patches), plain(patches - network.mean))
