import numpy as np
import pytest
import torch

from doap.networks.centre_surround import CentreSurround, MeanCentreSurround, halve_bicubic
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


def test_halving_as_imresize() -> None:
    """Compare with the definition: the cubic kernel, twice as wide, on mirrored pixels."""

    def cubic(x: float) -> float:
        x = abs(x)
        return 1.5 * x**3 - 2.5 * x**2 + 1 if x <= 1 else -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0.0

    mirrored = [*range(64), *range(63, -1, -1)]
    matrix = np.zeros((32, 64))
    for row in range(32):
        for pixel in range(-8, 72):
            matrix[row, mirrored[pixel % 128]] += cubic((pixel - (2 * row + 0.5)) / 2) / 2
    np.testing.assert_allclose(matrix.sum(1), 1)
    inputs = patches(3).double()
    expected = matrix @ inputs.numpy() @ matrix.T
    np.testing.assert_allclose(halve_bicubic(inputs), expected, atol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        assert halve_bicubic(inputs.float()).dtype == torch.float32


def test_published_towers_have_unit_length_and_stored_means() -> None:
    network, inputs = MeanCentreSurround(12, width=2).eval(), patches(3)
    network.get_buffer("centre.mean").copy_(torch.rand(1, 1, 32, 32) * 100)
    outputs, maps = network.forward_with_maps(inputs)
    torch.testing.assert_close(outputs, network(inputs))
    centre, surround = network.centre(inputs[:, :, 16:48, 16:48]), network.surround(halve_bicubic(inputs))
    expected = [values / values.norm(dim=1, keepdim=True) for values in (centre, surround)]
    torch.testing.assert_close(outputs, torch.cat(expected, 1))
    assert len(maps) == 4
