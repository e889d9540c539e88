import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.ndimage import map_coordinates
from torch.utils.flop_counter import FlopCounterMode

from doap import describe_patches, load
from doap.networks.architecture import Architecture, build_network
from doap.networks.descriptor import Descriptor
from doap.networks.l2net import L2Net
from doap.networks.registry import save
from doap.networks.spatial_transformer import (
    MATRIX_BOUND,
    SHIFT_BOUND,
    Padding,
    SpatialTransformer,
    TransformedNetwork,
    prediction_parameters,
    resample,
)
from support.modules import call_with, convert_to_channels_last

IDENTITY = torch.eye(2, 3, dtype=torch.float64)
BOUNDS = torch.tensor([MATRIX_BOUND, MATRIX_BOUND, SHIFT_BOUND], dtype=torch.float64)


def random_transformer(
    width: int = 2, spread: float = 0.3, padding: Padding = "replicate", bounded: bool = True
) -> SpatialTransformer:
    """Return a transformer that does not predict the identity."""
    transformer = SpatialTransformer(width, padding, bounded)
    weight, bias = (transformer.get_parameter(f"prediction.{name}") for name in ("weight", "bias"))
    torch.nn.init.normal_(weight, std=spread / weight[0].numel() ** 0.5)
    torch.nn.init.normal_(bias, std=spread)
    return transformer


def bright_patches(count: int) -> torch.Tensor:
    """Sample patches without black pixels, so that a pixel from beyond the padding is detected."""
    return torch.rand(count, 1, 42, 42, dtype=torch.float64) * 155 + 100


def by_scipy(patches: torch.Tensor, transforms: torch.Tensor, padding: Padding) -> np.ndarray:
    """Resample patches with SciPy, whose coordinates are rows and columns, with 0 at the centre of the first pixel."""
    centres = (np.arange(32) + 0.5) / 32 * 2 - 1
    y, x = np.meshgrid(centres, centres, indexing="ij")
    aligned = []
    for patch, matrix in zip(patches[:, 0].numpy(), transforms.numpy(), strict=True):
        coordinates = np.einsum("ij,jhw->ihw", matrix, np.stack([x, y, np.ones_like(x)]))
        columns, rows = (coordinates + 1) / 2 * 42 - 0.5
        mode = "nearest" if padding == "replicate" else "grid-constant"
        aligned.append(map_coordinates(patch, [rows, columns], order=1, mode=mode, cval=0))
    return np.stack(aligned)


@pytest.mark.parametrize("padding", ["replicate", "zeros"])
def test_it_starts_as_the_identity_the_whole_patch_sampled(padding: Padding) -> None:
    transformer = SpatialTransformer(padding=padding).double()
    patches = bright_patches(4)
    transforms = transformer.predict_transforms(patches)
    assert torch.equal(transforms, IDENTITY.expand(4, 2, 3))
    aligned = transformer(patches)
    assert aligned.shape == (4, 1, 32, 32)
    np.testing.assert_allclose(aligned[:, 0].detach(), by_scipy(patches, transforms.detach(), padding), atol=1e-9)


def test_the_identity_by_hand() -> None:
    """Pixel i of 32 lies at (i + 1/2) 42 / 32 - 1/2 of 42: a weighted mean of two by two neighbours."""
    patches = bright_patches(2)
    positions = (np.arange(32) + 0.5) * 42 / 32 - 0.5
    low = np.floor(positions).astype(int)
    weights = np.zeros((32, 42))
    weights[np.arange(32), low] = 1 - (positions - low)
    weights[np.arange(32), low + 1] = positions - low
    expected = weights @ patches[:, 0].numpy() @ weights.T
    np.testing.assert_allclose(SpatialTransformer().double()(patches)[:, 0].detach(), expected, atol=1e-9)


@pytest.mark.parametrize("padding", ["replicate", "zeros"])
def test_all_extreme_transformations_sample_as_scipy_does(padding: Padding) -> None:
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=6)), dtype=torch.float64).reshape(64, 2, 3)
    transforms = IDENTITY + signs * BOUNDS
    patches = bright_patches(1).expand(64, 1, 42, 42)
    aligned = resample(patches, transforms, padding)
    np.testing.assert_allclose(aligned[:, 0], by_scipy(patches, transforms, padding), atol=1e-8)
    assert (aligned.amin() >= 100) == (padding == "replicate")
    assert (torch.linalg.det(transforms[:, :, :2]) > 0).all()


@pytest.mark.parametrize("padding", ["replicate", "zeros"])
def test_any_transformation_samples_as_scipy_does(padding: Padding) -> None:
    transforms = IDENTITY + (2 * torch.rand(20, 2, 3, dtype=torch.float64) - 1) * BOUNDS
    patches = bright_patches(20)
    aligned = resample(patches, transforms, padding)
    np.testing.assert_allclose(aligned[:, 0], by_scipy(patches, transforms, padding), atol=1e-8)


def far_transforms(count: int) -> torch.Tensor:
    """Sample unbounded transformations: from inside the patch to a hundred patches away, mirrored and singular."""
    transforms = IDENTITY + torch.randn(count, 2, 3, dtype=torch.float64) * torch.logspace(-1, 2, count)[:, None, None]
    transforms[0] = 0
    return transforms


def by_a_loop(patches: torch.Tensor, transforms: torch.Tensor, padding: Padding) -> np.ndarray:
    """Resample pixel by pixel: the mean of four neighbours, each by its area; beyond the patch border or zero."""
    aligned = np.zeros((len(patches), 32, 32))
    for n, (patch, matrix) in enumerate(zip(patches[:, 0].numpy(), transforms.numpy(), strict=True)):
        for i, j in itertools.product(range(32), repeat=2):
            x, y = (matrix @ [(2 * j + 1) / 32 - 1, (2 * i + 1) / 32 - 1, 1] + 1) * 21 - 0.5
            top, left = int(np.floor(y)), int(np.floor(x))
            for row, column in itertools.product((top, top + 1), (left, left + 1)):
                area = (1 - abs(y - row)) * (1 - abs(x - column))
                inside = 0 <= row < 42 and 0 <= column < 42
                if inside or padding == "replicate":
                    aligned[n, i, j] += area * patch[min(max(row, 0), 41), min(max(column, 0), 41)]
    return aligned


@pytest.mark.parametrize("padding", ["replicate", "zeros"])
def test_unbounded_transformations_sample_as_a_loop_does(padding: Padding) -> None:
    patches, transforms = bright_patches(6), far_transforms(6)
    aligned = resample(patches, transforms, padding)
    np.testing.assert_allclose(aligned[:, 0], by_a_loop(patches, transforms, padding), atol=1e-8)


@pytest.mark.parametrize("padding", ["replicate", "zeros"])
def test_values_and_gradients_are_those_of_grid_samples_own_padding(padding: Padding) -> None:
    patches, transforms = bright_patches(30).requires_grad_(), far_transforms(30).requires_grad_()
    mode = "border" if padding == "replicate" else "zeros"
    grid = F.affine_grid(transforms, [30, 1, 32, 32], align_corners=False)
    expected = F.grid_sample(patches, grid, padding_mode=mode, align_corners=False)
    aligned = resample(patches, transforms, padding)
    torch.testing.assert_close(aligned, expected, atol=1e-9, rtol=0)
    weights = torch.randn_like(aligned)
    gradients = torch.autograd.grad((aligned * weights).sum(), (patches, transforms))
    expected_gradients = torch.autograd.grad((expected * weights).sum(), (patches, transforms))
    torch.testing.assert_close(gradients, expected_gradients, atol=1e-7, rtol=1e-9)
    assert gradients[1].abs().amax((1, 2)).count_nonzero() > 10


def test_an_unbounded_transformation_is_the_identity_plus_the_prediction() -> None:
    transformer = random_transformer(bounded=False).double().eval()
    patches = bright_patches(4)
    normalised = (patches - patches.mean((2, 3), keepdim=True)) / patches.std((2, 3), correction=0, keepdim=True)
    predicted = transformer.prediction(transformer.layers(normalised)).reshape(4, 2, 3)
    torch.testing.assert_close(transformer.predict_transforms(patches), IDENTITY + predicted)
    bounded = random_transformer().double().eval()
    bounded.load_state_dict(transformer.state_dict())
    expected = IDENTITY + BOUNDS * predicted.tanh()
    torch.testing.assert_close(bounded.predict_transforms(patches), expected, atol=1e-7, rtol=0)


@pytest.mark.parametrize("padding", ["replicate", "zeros"])
@pytest.mark.parametrize("shift", [3.0, 1e8, 1e38])
def test_a_grid_off_the_patch_gives_finite_activations_and_gradients(padding: Padding, shift: float) -> None:
    transformer = random_transformer(padding=padding, bounded=False)
    with torch.no_grad():
        transformer.get_parameter("prediction.bias")[[2, 5]] = shift
    network = TransformedNetwork(transformer, L2Net(8, 2))
    patches = bright_patches(6).float()
    aligned = transformer.eval()(patches)[:, 0]
    corner = patches[:, 0, -1, -1] if padding == "replicate" else torch.zeros(6)
    if shift > 3:
        torch.testing.assert_close(aligned, corner[:, None, None].expand(6, 32, 32), atol=0.01, rtol=0)
    outputs = network.train()(patches)
    outputs.square().sum().backward()
    assert torch.isfinite(outputs).all()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in network.parameters())


def test_huge_predictions_stay_within_the_bounds() -> None:
    transformer = random_transformer(spread=1e6)
    offsets = (transformer.predict_transforms(bright_patches(8).float()).double() - IDENTITY).abs()
    assert (offsets <= BOUNDS + 1e-6).all()
    assert (offsets > 0.99 * BOUNDS).all()


def test_brightness_and_contrast_do_not_change_the_prediction() -> None:
    transformer = random_transformer().eval().double()
    patches = bright_patches(5)
    torch.testing.assert_close(
        transformer.predict_transforms(patches * 0.6 - 20), transformer.predict_transforms(patches)
    )


def test_single_precision_coordinates_are_not_rounded() -> None:
    patches, transforms = bright_patches(9), IDENTITY + (2 * torch.rand(9, 2, 3, dtype=torch.float64) - 1) * BOUNDS
    wide = resample(patches, transforms, "replicate")
    with torch.autocast("cpu", torch.bfloat16):
        narrow = resample(patches.float(), transforms.float(), "replicate")
    torch.testing.assert_close(narrow.double(), wide, atol=0.01, rtol=0)


def test_under_autocast_the_transformation_is_in_full_precision() -> None:
    transformer = random_transformer().eval()
    patches = bright_patches(3).float()
    expected = transformer.predict_transforms(patches)
    with torch.autocast("cpu", torch.bfloat16):
        transforms = transformer.predict_transforms(patches)
    assert transforms.dtype == torch.float32
    torch.testing.assert_close(transforms, expected, atol=0.02, rtol=0)


def test_a_transformer_in_float64_reads_float32() -> None:
    transformer, patches = random_transformer().double().eval(), bright_patches(3)
    torch.testing.assert_close(transformer(patches.float()).double(), transformer(patches), atol=0.01, rtol=0)


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("padding", ["replicate", "zeros"])
def test_gradient_in_float64(padding: Padding, bounded: bool) -> None:
    torch.manual_seed(3)
    transformer = SpatialTransformer(1, padding, bounded).double().eval()
    # Smooth patches: bilinear sampling of rough ones has kinks that break finite differences.
    ramp = torch.linspace(0, 3, 42, dtype=torch.float64)
    patches = torch.sin(ramp * 1.3)[:, None] * torch.cos(ramp)[None] * 50
    patches = torch.stack([patches, patches.T + ramp])[:, None]
    weight = torch.randn_like(transformer.prediction.weight) * 0.05
    bias = torch.randn(6, dtype=torch.float64) * 0.3

    def aligned(*raw: torch.Tensor) -> torch.Tensor:
        parameters = dict(zip(("prediction.weight", "prediction.bias"), raw, strict=True))
        return call_with(transformer, parameters, patches).flatten(1)[:, ::97]

    weight.requires_grad_()
    bias.requires_grad_()
    # The bias value by value, the many weights along random directions.
    assert torch.autograd.gradcheck(lambda raw: aligned(weight.detach(), raw), bias, eps=1e-7, atol=1e-4, rtol=1e-3)
    assert torch.autograd.gradcheck(aligned, (weight, bias), eps=1e-7, atol=1e-4, rtol=1e-3, fast_mode=True)


def test_training_moves_the_prediction_first_and_then_every_layer() -> None:
    transformer = SpatialTransformer(2)
    patches = bright_patches(6).float()
    optimiser = torch.optim.SGD(transformer.parameters(), 1e-3)
    moved = []
    for _ in range(2):
        optimiser.zero_grad()
        (transformer(patches)[:, :, :16].square().mean() / 1000).backward()
        moved.append({name for name, p in transformer.named_parameters() if p.grad is not None and p.grad.any()})
        optimiser.step()
    assert moved[0] == {"prediction.weight", "prediction.bias"}
    assert moved[1] == {name for name, _ in transformer.named_parameters()}


def test_the_transformer_is_cheap_compared_with_the_network() -> None:
    network = build_network(Architecture(transformer=True))
    assert isinstance(network, TransformedNetwork)
    counts = []
    for module, size in ((network.transformer, 42), (network.network, 32)):
        with FlopCounterMode(display=False) as counter:
            module(torch.rand(2, 1, size, size))
        counts.append(counter.get_total_flops() / 4)
    assert counts[0] / counts[1] == pytest.approx(0.045, abs=0.0005)
    assert sum(p.numel() for p in network.transformer.parameters()) == 36_438


def small_network(dimensions: int = 8, width: int = 2) -> TransformedNetwork:
    return TransformedNetwork(random_transformer(), L2Net(dimensions, width)).eval()


def test_the_whole_network_is_the_transformer_and_then_the_network() -> None:
    network = small_network()
    patches = bright_patches(3).float()
    assert (network.input_size, network.dimensions) == (42, 8)
    torch.testing.assert_close(network(patches), network.network(network.transformer(patches)))


@pytest.mark.parametrize("shape", [(3, 1, 32, 32), (3, 3, 42, 42), (3, 42, 42)])
def test_other_inputs_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"TransformedNetwork takes \(N, 1, 42, 42\)"):
        small_network()(torch.zeros(shape))


def test_a_network_of_another_input_is_refused() -> None:
    with pytest.raises(ValueError, match="aligned patches are 32 pixels wide, but the network reads 42"):
        TransformedNetwork(random_transformer(), small_network())


def test_a_patch_is_described_alike_alone_in_a_batch_and_with_channels_last() -> None:
    network = small_network()
    patches = bright_patches(5).float()
    described = network(patches)
    torch.testing.assert_close(network(patches[2:3]), described[2:3], atol=1e-4, rtol=1e-4)
    convert_to_channels_last(network)
    last = network(patches.to(memory_format=torch.channels_last))
    torch.testing.assert_close(last, described, atol=1e-4, rtol=1e-4)


def test_a_constant_patch_is_finite_with_a_finite_gradient() -> None:
    network = small_network()
    patches = torch.full((4, 1, 42, 42), 200.0, requires_grad=True)
    outputs = network(patches)
    outputs.sum().backward()
    assert torch.isfinite(outputs).all()
    assert patches.grad is not None
    assert torch.isfinite(patches.grad).all()


def test_an_exported_network_describes_alike_in_batches_of_any_size() -> None:
    network = small_network()
    exported = torch.export.export(
        network, (torch.rand(4, 1, 42, 42),), dynamic_shapes=({0: torch.export.Dim("n", min=1, max=4096)},)
    ).module()
    patches = bright_patches(7).float()
    torch.testing.assert_close(exported(patches), network(patches), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("bounded", "padding"), [(True, "replicate"), (False, "replicate"), (False, "zeros")])
def test_models_come_back_bit_for_bit(bounded: bool, padding: Padding, tmp_path: Path) -> None:
    architecture = Architecture(
        dimensions=8, width=4, transformer=True, transformer_bounded=bounded, transformer_padding=padding
    )
    network = build_network(architecture)
    assert isinstance(network, TransformedNetwork)
    torch.nn.init.normal_(network.transformer.prediction.weight, std=0.02)
    network(bright_patches(9).float())  # changes the running statistics
    save(Descriptor(network, "real", 12.0, "st"), tmp_path / "st.safetensors", architecture)
    back = load(tmp_path / "st.safetensors", fast=False)
    assert (back.input_size, back.network.dimensions) == (42, 8)
    state = network.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in back.network.state_dict().items())
    patches = np.random.default_rng(0).integers(0, 256, (5, 65, 65), dtype=np.uint8)
    original = Descriptor(network.eval(), "real", 12.0, "st")
    np.testing.assert_array_equal(describe_patches(patches, back), describe_patches(patches, original))


def test_the_prediction_parameters_are_those_of_the_prediction_layer() -> None:
    network = small_network()
    parameters = prediction_parameters(network)
    prediction = network.transformer.prediction
    assert [id(p) for p in parameters] == [id(prediction.weight), id(prediction.bias)]
    assert prediction_parameters(L2Net(8, 2)) == []
