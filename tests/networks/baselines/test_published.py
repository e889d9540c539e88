"""Published networks, compared with independent implementations of their papers by torch's functions."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

import doap
from doap import DoapError
from doap.networks.baselines.deepdesc import DeepDesc
from doap.networks.baselines.desdis import DesDis
from doap.networks.baselines.matchnet import MatchNet
from doap.networks.baselines.tfeat import HardTFeat, TFeat
from doap.networks.network import PatchNetwork

Weights = dict[str, Tensor]
Strips = tuple[NDArray[np.uint8], NDArray[np.uint8]]


def standardise(x: Tensor, correction: int) -> Tensor:
    return (x - x.mean((2, 3), keepdim=True)) / x.std((2, 3), correction=correction, keepdim=True)


def tfeat(w: Weights, x: Tensor) -> Tensor:
    x = standardise(x, 0)
    x = F.max_pool2d(torch.tanh(F.conv2d(x, w["features.1.weight"], w["features.1.bias"])), 2, 2)
    x = torch.tanh(F.conv2d(x, w["features.4.weight"], w["features.4.bias"]))
    return torch.tanh(x.reshape(len(x), 4096) @ w["descr.0.weight"].T + w["descr.0.bias"])


def hardtfeat(w: Weights, x: Tensor) -> Tensor:
    x = standardise(x, 1)
    x = F.max_pool2d(torch.tanh(F.conv2d(x, w["features.0.weight"], w["features.0.bias"])), 2, 2)
    x = torch.tanh(F.conv2d(x, w["features.3.weight"], w["features.3.bias"]))
    return torch.tanh(F.conv2d(x, w["classifier.1.weight"], w["classifier.1.bias"])).reshape(len(x), 128)


def desdis(w: Weights, x: Tensor) -> Tensor:
    def step(x: Tensor, convolution: str, norm: str, stride: int) -> Tensor:
        x = F.conv2d(x, w[f"{convolution}.weight"], stride=stride, padding=1)
        mean, variance = (w[f"{norm}.running_{what}"][None, :, None, None] for what in ("mean", "var"))
        return ((x - mean) / (variance + 1e-5).sqrt()).clamp(min=0)

    x = step(standardise(x, 0), "layer1.1", "layer1.2", 2)
    x = step(step(x, "layer2.0", "layer2.1", 2), "layer3.0", "layer3.1", 2)
    x = step(x, "layer3.3", "layer3.4", 1)
    x = torch.einsum("nchw,dchw->nd", x, w["desc.1.weight"]) + w["desc.1.bias"]
    return (x - w["desc.2.running_mean"]) / (w["desc.2.running_var"] + 1e-5).sqrt()


def matchnet(w: Weights, x: Tensor) -> Tensor:
    def pool(x: Tensor) -> Tensor:  # after ReLU a 0 at the far edge changes no maximum
        return F.max_pool2d(F.pad(x, (0, 1, 0, 1)), 3, 2)

    x = (x - 128) / 160
    for layer, padding, pooled in ((0, 3, True), (1, 2, True), (2, 1, False), (3, 1, False), (4, 1, True)):
        x = F.relu(F.conv2d(x, w[f"conv{layer}.weight"], w[f"conv{layer}.bias"], padding=padding))
        x = pool(x) if pooled else x
    return x.reshape(len(x), 4096)


def deepdesc(w: Weights, x: Tensor) -> Tensor:
    def subtract(x: Tensor, kernel: Tensor) -> Tensor:
        """Apply nn.SpatialSubtractiveNormalization of Torch 7: one mean of all channels, corrected at the border."""
        weight = kernel.expand(1, x.shape[1], 5, 5)
        sums, at_edge = (F.conv2d(F.pad(v, (2, 2, 2, 2)), weight) for v in (x, torch.ones_like(x)))
        return x - sums / at_edge

    x = (x - w["mean"]) / w["std"]
    x = F.lp_pool2d(torch.tanh(F.conv2d(x, w["conv0.weight"], w["conv0.bias"])), 2, 2)
    x = torch.tanh(F.conv2d(subtract(x, w["subtract0.kernel"]), w["conv1.weight"], w["conv1.bias"]))
    x = subtract(F.lp_pool2d(x, 2, 3), w["subtract1.kernel"])
    return F.lp_pool2d(torch.tanh(F.conv2d(x, w["conv2.weight"], w["conv2.bias"])), 2, 4).reshape(len(x), 128)


Build = Callable[[], PatchNetwork]
NETWORKS: dict[str, tuple[Build, Callable[[Weights, Tensor], Tensor]]] = {
    "tfeat-liberty": (TFeat, tfeat),
    "hardtfeat-liberty": (HardTFeat, hardtfeat),
    "desdis-8": (partial(DesDis, 8), desdis),
    "desdis-32": (partial(DesDis, 32), desdis),
    "matchnet-liberty": (MatchNet, matchnet),
    "deepdesc-split1": (DeepDesc, deepdesc),
}
SIZES = {"matchnet-liberty": 64, "deepdesc-split1": 64}


def random_weights(build: Build) -> Weights:
    """Return weights in the official format, large enough that activations do not vanish."""
    weights = build().state_dict()
    for name, value in weights.items():
        if name.endswith(("var", "std", "kernel")):
            value.uniform_(0.5, 2)
        elif name.endswith(("mean", "bias")):
            value.normal_(0, 0.1)
    return weights


@pytest.fixture(params=NETWORKS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path, name: str) -> Path:
    save_file(random_weights(NETWORKS[name][0]), tmp_path / "whatever.safetensors")
    return tmp_path / "whatever.safetensors"


def test_a_network_is_recognised_by_its_tensors_and_computes_what_its_paper_says(path: Path, name: str) -> None:
    model = doap.load(path, fast=False)
    size = SIZES.get(name, 32)
    assert (model.kind, model.extent, model.name, model.input_size) == ("real", 12.0, "whatever", size)
    assert not model.training
    patches = np.random.default_rng(0).integers(0, 256, (5, size, size), dtype=np.uint8)
    expected = NETWORKS[name][1](load_file(path), torch.from_numpy(patches[:, None]).float())
    assert expected.shape == (5, model.network.dimensions)
    vectors = doap.describe_patches(patches, model)
    np.testing.assert_allclose(vectors, F.normalize(expected).numpy(), atol=2e-6)
    alone = np.concatenate([doap.describe_patches(patch[None], model) for patch in patches])
    np.testing.assert_allclose(vectors, alone, atol=2e-6)


def test_gradients_flow(path: Path) -> None:
    network = doap.load(path, fast=False).network.double()
    size = network.input_size
    patch = (torch.rand(1, 1, size, size, dtype=torch.float64) * 255).requires_grad_()
    assert torch.autograd.gradcheck(network, patch, eps=1e-4, atol=1e-6, fast_mode=True)
    (gradient,) = torch.autograd.grad(network(patch).square().sum(), patch)
    assert gradient.abs().max() > 0


def test_a_constant_patch_gives_finite_values(path: Path) -> None:
    assert np.isfinite(doap.describe_patches(np.full((2, 40, 40), 77, np.uint8), doap.load(path, fast=False))).all()


def test_other_tensors_are_not_recognised(path: Path) -> None:
    weights = load_file(path)
    bias = next(name for name in weights if name.endswith("bias"))
    less = {name: value for name, value in weights.items() if name != bias}
    for wrong in ({**weights, "more": torch.zeros(1)}, {**weights, bias: torch.zeros(7)}, less):
        save_file(wrong, path)
        with pytest.raises(DoapError, match=r"^[^\n]*its card whatever\.json cannot be read[^\n]*$"):
            doap.load(path)


def test_a_truncated_file_is_refused_in_one_line(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DoapError, match=r"^[^\n]*its card whatever\.json cannot be read[^\n]*$"):
        doap.load(path)


@pytest.fixture(scope="module")
def strips(hpatches_patches: Path) -> Strips:
    """Return 125 patches of the reference image and, with strong jitter, of the third image."""
    folder = hpatches_patches / "i_contruction"
    ref, other = (np.array(Image.open(folder / f"{strip}.png")).reshape(-1, 65, 65)[::16] for strip in ("ref", "h3"))
    return ref, other


def matching_rate(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    """Return the fraction of patches whose nearest neighbour by L2 is the same point."""
    nearest = torch.cdist(torch.from_numpy(first), torch.from_numpy(second)).argmin(1)
    return float((nearest == torch.arange(len(first))).float().mean())


def test_published_weights_match_real_patches(published_baselines: Path, strips: Strips) -> None:
    """Not a benchmark: wrongly connected weights would be no better than pixels, or than chance, 0.8 %."""
    pixels = [F.adaptive_avg_pool2d(torch.from_numpy(strip).float(), 32).flatten(1) for strip in strips]
    plain = matching_rate(*(F.normalize(values - values.mean(1, keepdim=True)).numpy() for values in pixels))
    sift = matching_rate(*(doap.describe_patches(strip, doap.load("sift")) for strip in strips))
    models = {name: doap.load(published_baselines / f"{name}.safetensors", fast=False) for name in NETWORKS}
    rates = {
        name: matching_rate(*(doap.describe_patches(strip, model) for strip in strips))
        for name, model in models.items()
    }
    assert all(rate > sift > plain for rate in rates.values()), rates
    assert rates["desdis-32"] > rates["desdis-8"] > rates["tfeat-liberty"]
