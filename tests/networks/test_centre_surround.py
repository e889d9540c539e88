import numpy as np
import pytest
import torch

from doap.networks.centre_surround import CentreSurround
from doap.networks.l2net import L2Net
from support.modules import call_with


def patches(count: int) -> torch.Tensor:
    return torch.rand(count, 1, 64, 64) * 255


def test_two_l2nets_called_by_hand() -> None:
    network = CentreSurround(12, width=2).eval()
    inputs = patches(4)
    towers = [L2Net(6, 2).eval(), L2Net(6, 2).eval()]
    for tower, name in zip(towers, ("centre", "surround"), strict=True):
        prefix = f"{name}."
        state = {k.removeprefix(prefix): v for k, v in network.state_dict().items() if k.startswith(prefix)}
        tower.load_state_dict(state)
    pixels = inputs.numpy()
    centre = pixels[:, :, 16:48, 16:48]
    halved = pixels.reshape(4, 1, 32, 2, 32, 2).mean((3, 5))
    tower_inputs = (torch.from_numpy(np.ascontiguousarray(array)) for array in (centre, halved))
    expected = [tower(patch) for tower, patch in zip(towers, tower_inputs, strict=True)]
    torch.testing.assert_close(network(inputs), torch.cat(expected, 1), atol=1e-4, rtol=1e-4)


def test_the_towers_share_no_weights() -> None:
    network = CentreSurround(256)
    assert sum(p.numel() for p in network.parameters()) == 2 * 1_334_560
    first_layers = [network.get_parameter(f"{tower}.layers.0.weight") for tower in ("centre", "surround")]
    assert not torch.equal(*first_layers)


def test_shape_and_input_size() -> None:
    network = CentreSurround(width=1)
    assert (network.input_size, network.dimensions) == (64, 256)
    assert network(patches(3)).shape == (3, 256)


@pytest.mark.parametrize("shape", [(3, 1, 32, 32), (3, 3, 64, 64), (3, 64, 64)])
def test_other_inputs_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"CentreSurround takes \(N, 1, 64, 64\)"):
        CentreSurround(4, width=1)(torch.zeros(shape))


def test_odd_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match="127 is odd"):
        CentreSurround(127)


def test_a_patch_is_described_alike_alone_and_in_a_batch() -> None:
    network = CentreSurround(8, width=2).eval()
    inputs = patches(5)
    torch.testing.assert_close(network(inputs)[2:3], network(inputs[2:3]), atol=1e-4, rtol=1e-4)


def test_a_constant_patch_is_finite_with_a_finite_gradient() -> None:
    inputs = torch.full((3, 1, 64, 64), 200.0, requires_grad=True)
    outputs = CentreSurround(4, width=1).eval()(inputs)
    outputs.sum().backward()
    assert torch.isfinite(outputs).all()
    assert inputs.grad is not None
    assert torch.isfinite(inputs.grad).all()


def test_gradient_in_float64() -> None:
    torch.manual_seed(1)
    network = CentreSurround(4, width=1, dropout=0.0).double()
    inputs = torch.rand(2, 1, 64, 64, dtype=torch.float64)
    names = ("centre.layers.0.weight", "surround.layers.0.weight")
    weights = [network.get_parameter(name).detach().clone().requires_grad_() for name in names]

    def first_layers(*values: torch.Tensor) -> torch.Tensor:
        return call_with(network, dict(zip(names, values, strict=True)), inputs)

    assert torch.autograd.gradcheck(first_layers, weights, atol=1e-5)
