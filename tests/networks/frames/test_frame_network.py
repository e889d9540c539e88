import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from doap.errors import DoapError
from doap.networks.card import Origin
from doap.networks.frames import FrameNetwork, FrameSettings
from doap.networks.frames.frame_network import INPUT_SIZE, keep_vertical, rotations, symmetric_shapes
from doap.networks.frames.loading import load_frame_network, save_frame_network


def sample_patches(count: int) -> Tensor:
    return 255 * torch.rand(count, 1, INPUT_SIZE, INPUT_SIZE)


def trained(settings: FrameSettings | None = None) -> FrameNetwork:
    """Return a network with a random prediction layer, as after some training."""
    network = FrameNetwork(settings)
    torch.nn.init.normal_(network.prediction.weight, std=0.2)
    return network.eval()


@pytest.mark.parametrize("corrections", ["full", "shape"])
def test_the_initial_network_is_exactly_the_identity(corrections: str) -> None:
    network = FrameNetwork(FrameSettings.model_validate({"corrections": corrections}))
    expected = torch.eye(2).expand(5, 2, 2)
    torch.testing.assert_close(network(sample_patches(5)), expected, atol=1e-7, rtol=0)
    torch.testing.assert_close(network(torch.zeros(5, 1, 32, 32)), expected, atol=1e-7, rtol=0)


def test_shapes_are_matrix_exponentials_within_the_bound() -> None:
    values = torch.randn(200, 2, dtype=torch.float64) * 3
    values[0] = 0
    bound = math.log(6) / 2
    shapes = symmetric_shapes(values, bound)
    length = values.norm(dim=1, keepdim=True).clamp(min=1e-30)
    p, q = (values * bound * torch.tanh(length / bound) / length).unbind(1)
    generators = torch.stack([torch.stack([p, q], 1), torch.stack([q, -p], 1)], 1)
    torch.testing.assert_close(shapes, torch.linalg.matrix_exp(generators))
    ratios = torch.linalg.cond(shapes)
    assert ratios.max() <= 6 + 1e-9
    assert ratios.max() > 5


def test_a_power_of_the_predicted_shape_is_applied_after_the_training() -> None:
    full, half = trained(), trained(FrameSettings(shape_power=0.5))
    torch.nn.init.normal_(full.prediction.weight, std=0.001)  # far from the bound, which is applied after the power
    half.load_state_dict(full.state_dict())
    patches = sample_patches(20)
    before, after = (network(patches).detach() for network in (full, half))

    def squared_shapes(corrections: Tensor) -> Tensor:
        products = corrections @ corrections.mT  # s² S²
        return products / products.det().sqrt()[:, None, None]

    root = squared_shapes(after)
    torch.testing.assert_close(root @ root, squared_shapes(before), atol=0.02, rtol=0.02)
    assert torch.linalg.cond(squared_shapes(before)).max() > 1.1
    torch.testing.assert_close(before.det(), after.det(), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(full.train()(patches), half.train()(patches))


def test_lower_triangular_shapes_have_the_same_ellipses() -> None:
    shapes = symmetric_shapes(torch.randn(50, 2, dtype=torch.float64), 1.0)
    lower = keep_vertical(shapes)
    torch.testing.assert_close(lower @ lower.mT, shapes @ shapes.mT)
    assert (lower[:, 0, 1] == 0).all()
    assert (lower.det() > 0).all()


def test_rotations_of_vectors() -> None:
    angle = torch.linspace(-3, 3, 20)
    vectors = torch.stack([angle.cos(), angle.sin()], 1) * torch.linspace(0.1, 9, 20)[:, None]
    torch.testing.assert_close(rotations(vectors)[:, :, 0], vectors / vectors.norm(dim=1, keepdim=True))
    torch.testing.assert_close(rotations(torch.zeros(1, 2))[0], torch.eye(2))


def test_corrections_are_finite_and_bounded_for_any_patch() -> None:
    settings = FrameSettings(max_ratio=4, max_scale=1.5)
    network = trained(settings)
    network.prediction.weight.data *= 100
    patches = torch.cat([sample_patches(20), torch.zeros(1, 1, 32, 32), torch.full((1, 1, 32, 32), 255.0)])
    corrections = network(patches)
    assert corrections.isfinite().all()
    determinants = corrections.det()
    assert ((determinants >= 1 / 1.5**2 - 1e-3) & (determinants <= 1.5**2 + 1e-3)).all()
    assert torch.linalg.cond(corrections).max() < 4.001


def test_patches_do_not_influence_each_other_and_light_does_not_matter() -> None:
    network, patches = trained(), sample_patches(6)
    together = network(patches)
    torch.testing.assert_close(torch.cat([network(patch[None]) for patch in patches]), together, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(network(20 + 0.5 * patches), together, atol=1e-4, rtol=1e-3)


def test_gradient_in_float64() -> None:
    network = trained(FrameSettings(width=2)).double()
    patches = sample_patches(2).double().requires_grad_()
    assert torch.autograd.gradcheck(network, patches, eps=1e-4, atol=1e-6, rtol=1e-3, fast_mode=True)


def test_size() -> None:
    parameters = sum(parameter.numel() for parameter in FrameNetwork().parameters())
    assert parameters == 92_053
    with pytest.raises(ValueError, match="takes"):
        FrameNetwork()(torch.zeros(1, 1, 16, 16))


def test_saved_networks_are_loaded(tmp_path: Path) -> None:
    network, file = trained(FrameSettings(width=4, extent=20)), tmp_path / "a.safetensors"
    save_frame_network(network, file, "a", Origin(data="photos"))
    loaded = load_frame_network(str(file))
    assert loaded.settings == network.settings
    patches = sample_patches(3)
    torch.testing.assert_close(loaded(patches), network(patches))


def test_a_network_is_loaded_again_only_if_a_file_has_changed(tmp_path: Path) -> None:
    settings, file, patches = FrameSettings(width=4), tmp_path / "a.safetensors", sample_patches(3)
    first, second = trained(settings), trained(settings)
    save_frame_network(first, file, "a", Origin())
    loaded = load_frame_network(str(file))
    assert load_frame_network(str(file)) is loaded
    save_frame_network(second, file, "a", Origin())
    torch.testing.assert_close(load_frame_network(str(file))(patches), second(patches))
    assert not torch.allclose(first(patches), second(patches))
    card = file.with_suffix(".json")
    card.write_text(card.read_text().replace('"shape_power": 1.0', '"shape_power": 0.5'))
    assert load_frame_network(str(file)).settings.shape_power == 0.5


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "b.safetensors"
    save_frame_network(FrameNetwork(FrameSettings(width=4)), file, "b", Origin())
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(DoapError, match="SHA-256 differs"):
        load_frame_network(str(file))
    (tmp_path / "b.json").write_text("{}")
    with pytest.raises(DoapError, match="not the card"):
        load_frame_network(str(file))
    with pytest.raises(DoapError, match="has no card"):
        load_frame_network(str(tmp_path / "c.safetensors"))
