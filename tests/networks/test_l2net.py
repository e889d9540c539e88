import pytest
import torch
from torch import nn

from doap.networks.l2net import L2Net, MeanL2Net
from doap.networks.network import normalise
from support.modules import call_with


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


def test_he_initialisation() -> None:
    torch.manual_seed(0)
    for module in L2Net(128).modules():
        if isinstance(module, nn.Conv2d):
            fan_in = module.weight[0].numel()
            assert module.weight.std().item() == pytest.approx((2 / fan_in) ** 0.5, rel=0.15)


@pytest.mark.parametrize(("dimensions", "width"), [(128, 32), (256, 8), (7, 1)])
def test_shape(dimensions: int, width: int) -> None:
    assert L2Net(dimensions, width)(torch.rand(3, 1, 32, 32)).shape == (3, dimensions)


@pytest.mark.parametrize("shape", [(3, 1, 31, 32), (3, 3, 32, 32), (3, 32, 32)])
def test_other_inputs_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="L2Net takes"):
        L2Net()(torch.zeros(shape))


def test_a_patch_is_described_alike_alone_and_in_a_batch() -> None:
    network = L2Net(width=8).eval()
    patches = torch.rand(5, 1, 32, 32) * 255
    torch.testing.assert_close(network(patches)[2:3], network(patches[2:3]))


def test_brightness_and_contrast_change_nothing() -> None:
    network = L2Net(width=8).eval()
    patches = torch.rand(5, 1, 32, 32) * 100 + 50
    torch.testing.assert_close(network(patches * 1.7 - 30), network(patches), rtol=1e-3, atol=1e-3)


def test_a_constant_patch_is_finite_with_a_finite_gradient() -> None:
    network = L2Net(width=4)
    patches = torch.full((4, 1, 32, 32), 200.0, requires_grad=True)
    outputs = network.eval()(patches)
    outputs.sum().backward()
    assert torch.isfinite(outputs).all()
    assert patches.grad is not None
    assert torch.isfinite(patches.grad).all()
    assert (normalise(patches) == 0).all()


def test_normalisation_is_per_patch() -> None:
    normal = normalise(torch.rand(6, 1, 32, 32) * torch.arange(1, 7).view(6, 1, 1, 1) * 20)
    torch.testing.assert_close(normal.mean((1, 2, 3)), torch.zeros(6), atol=1e-5, rtol=0)
    torch.testing.assert_close(normal.std((1, 2, 3), correction=0), torch.ones(6))


def test_gradient_in_float64() -> None:
    torch.manual_seed(1)
    network = L2Net(3, width=1, dropout=0.0).double()
    patches = torch.rand(2, 1, 32, 32, dtype=torch.float64)
    weight = network.get_parameter("layers.0.weight")

    def first_layer(values: torch.Tensor) -> torch.Tensor:
        return call_with(network, {"layers.0.weight": values}, patches)

    assert torch.autograd.gradcheck(first_layer, weight.detach().clone().requires_grad_(), atol=1e-5)


def test_a_stored_mean_patch_is_subtracted_before_the_normalisation() -> None:
    network, plain = MeanL2Net(16, width=4).eval(), L2Net(16, width=4).eval()
    plain.load_state_dict({name: value for name, value in network.state_dict().items() if name != "mean"})
    patches = torch.rand(3, 1, 32, 32) * 255
    torch.testing.assert_close(network(patches), plain(patches))
    network.mean.copy_(torch.rand(1, 1, 32, 32) * 100)
    torch.testing.assert_close(network(patches), plain(patches - network.mean))
