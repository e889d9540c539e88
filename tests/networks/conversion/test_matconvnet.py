from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

import doap
from doap.networks.card import read_card
from doap.networks.conversion import convert

CHANNELS = [(3, 1, 4, 1), (3, 4, 4, 1), (3, 4, 8, 2), (3, 8, 8, 1), (3, 8, 16, 2), (3, 16, 16, 1), (8, 16, 24, 1)]

Array = NDArray[np.float64]


def cell(*values: object) -> NDArray[np.object_]:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def random_layers(generator: np.random.Generator) -> list[dict[str, Any]]:
    """Return the layers of a narrow L2-Net as MatConvNet stores them."""
    layers: list[dict[str, Any]] = []
    for size, inputs, outputs, stride in CHANNELS:
        filters = generator.normal(0, (2 / (size**2 * inputs)) ** 0.5, (size, size, inputs, outputs))
        moments = np.stack([generator.normal(0, 0.2, outputs), generator.uniform(0.5, 1.5, outputs)], 1)
        scale, shift = generator.uniform(0.8, 1.2, outputs), generator.normal(0, 0.1, outputs)
        bias = generator.normal(0, 0.1, (1, outputs))
        weights = cell(filters.astype(np.float32), bias.astype(np.float32))
        layers.append({"type": "conv", "weights": weights, "stride": stride, "pad": size // 2})
        layers.append({"type": "bnormPair", "weights": cell(scale[:, None], shift[:, None], moments)})
        if outputs != 24:
            layers.append({"type": "relu"})
    return [*layers, {"type": "normalize", "param": [256, 0, 256, 0.5]}]


def describe(patch: Array, mean: Array, layers: list[dict[str, Any]]) -> Array:
    """Compute what cal_L2Net_des.m does for one patch, channels last."""
    values = patch - mean
    values = values - values.mean()
    maps = (values / (values.std(ddof=1) + 1e-12))[:, :, None]
    for layer in layers:
        if layer["type"] == "conv":
            filters, bias = (np.asarray(part, np.float64) for part in layer["weights"])
            size = len(filters)
            margin = 1 if size == 3 else 0
            windows = sliding_window_view(np.pad(maps, ((margin,) * 2, (margin,) * 2, (0, 0))), (size, size), (0, 1))
            strided = windows[:: layer["stride"], :: layer["stride"]]
            maps = np.einsum("yxcij,ijck->yxk", strided, filters, optimize=True) + bias
        elif layer["type"] == "bnormPair":
            scale, shift, moments = layer["weights"]
            maps = scale[:, 0] * (maps - moments[:, 0]) / moments[:, 1] + shift[:, 0]
        elif layer["type"] == "relu":
            maps = np.maximum(maps, 0)
    descriptor = maps.reshape(-1)
    return np.asarray(descriptor / np.linalg.norm(descriptor))


@pytest.mark.parametrize("grey", ["patch in 0..255", "patch in 0..1", "number"])
def test_the_descriptors_of_the_authors_code(tmp_path: Path, grey: str) -> None:
    generator = np.random.default_rng(0)
    layers = random_layers(generator)
    mean = np.full((32, 32), 110.0) if grey == "number" else generator.uniform(60, 160, (32, 32))
    stored: object = 110.0 if grey == "number" else mean / 255 if grey == "patch in 0..1" else mean
    net = {"layers": cell(*layers)}
    savemat(tmp_path / "L2Net-LIB+.mat", {"net": net, "netCen": net, "pixMean": stored, "pixMeanCen": stored})
    model = doap.load(convert(tmp_path / "L2Net-LIB+.mat", tmp_path / "new.safetensors"), fast=False)
    patches = generator.integers(0, 256, (6, 32, 32), dtype=np.uint8)
    expected = [describe(patch.astype(np.float64), mean, layers) for patch in patches]
    np.testing.assert_allclose(doap.describe_patches(patches, model), expected, atol=1e-5)
    card = read_card(tmp_path / "new.safetensors")
    assert (card.architecture.network, card.architecture.dimensions, card.architecture.width) == ("l2net-mean", 24, 4)
    assert card.origin.notes["conversion"].startswith("converted from the layout of L2-Net: L2Net-LIB+.mat")


def halve(patch: NDArray[np.uint8]) -> Array:
    """Halve a patch with Pillow, whose bicubic filter is MATLAB's away from the border."""
    image = Image.fromarray(patch.astype(np.float32), "F")
    return np.asarray(image.resize((32, 32), Image.Resampling.BICUBIC), np.float64)


def test_the_descriptors_of_centre_and_surround(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    layers = [random_layers(generator), random_layers(generator)]
    means = [generator.uniform(60, 160, (32, 32)) for _ in layers]
    variables = {"net": {"layers": cell(*layers[0])}, "netCen": {"layers": cell(*layers[1])}}
    savemat(tmp_path / "cs.mat", {**variables, "pixMean": means[0], "pixMeanCen": means[1]})
    model = doap.load(convert(tmp_path / "cs.mat", tmp_path / "new.safetensors", centre_surround=True), fast=False)
    patches = np.full((4, 64, 64), 90, np.uint8)  # constant at the border, where Pillow's filter is another
    patches[:, 8:-8, 8:-8] = generator.integers(0, 256, (4, 48, 48))
    centre = [describe(patch[16:48, 16:48].astype(np.float64), means[1], layers[1]) for patch in patches]
    surround = [describe(halve(patch), means[0], layers[0]) for patch in patches]
    expected = np.concatenate([centre, surround], 1) / np.sqrt(2)
    np.testing.assert_allclose(doap.describe_patches(patches, model), expected, atol=2e-5)
    assert read_card(tmp_path / "new.safetensors").architecture.network == "cs-l2net-mean"


def wrong_file(case: str) -> tuple[dict[str, object], str]:
    layers = random_layers(np.random.default_rng(0))
    mean: object = np.zeros((32, 32))
    if case == "no mean":
        return {"net": {"layers": cell(*layers)}}, "has no variable pixMean"
    if case == "other mean":
        return {"net": {"layers": cell(*layers)}, "pixMean": np.zeros((31, 31))}, r"pixMean of shape \(31, 31\)"
    if case == "other variables":
        return {"net": np.zeros(3), "pixMean": mean}, "its layers are not those of L2-Net"
    if case == "fewer layers":
        return {"net": {"layers": cell(*layers[3:])}, "pixMean": mean}, "expected seven of conv and bnorm"
    if case == "too wide for memory":
        layers[0]["weights"] = cell(np.zeros((3, 3, 1, 4000)), np.zeros(4000))
        layers[1]["weights"] = cell(np.zeros(4000), np.zeros(4000), np.ones((4000, 2)))
        return {"net": {"layers": cell(*layers)}, "pixMean": mean}, "have not the shapes of L2-Net"
    if case == "too wide":
        layers[0]["weights"] = cell(np.zeros((3, 3, 1, 5000)), np.zeros(5000))
        layers[1]["weights"] = cell(np.zeros(5000), np.zeros(5000), np.ones((5000, 2)))
        return {"net": {"layers": cell(*layers)}, "pixMean": mean}, "its layers are not those of L2-Net"
    if case == "other moments":
        layers[1]["weights"][2] = np.zeros((5, 2))
        return {"net": {"layers": cell(*layers)}, "pixMean": mean}, r"moments of shape \(5, 2\) for 4 channels"
    if case == "other filters":
        layers[3]["weights"][0] = np.zeros((5, 5, 4, 4))
        return {"net": {"layers": cell(*layers)}, "pixMean": mean}, "have not the shapes of L2-Net"
    layers[4]["weights"][2] = np.zeros((4, 2))
    return {"net": {"layers": cell(*layers)}, "pixMean": mean}, "has variances of 0"


CASES = ("no mean", "other mean", "other variables", "fewer layers", "too wide for memory", "too wide", "other moments")


@pytest.mark.parametrize("case", [*CASES, "other filters", "no variance"])
def test_other_files_are_refused_in_one_line(tmp_path: Path, case: str) -> None:
    variables, message = wrong_file(case)
    savemat(tmp_path / "wrong.mat", variables)
    with pytest.raises(doap.DoapError, match=message) as caught:
        convert(tmp_path / "wrong.mat", tmp_path / "new.safetensors")
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.mat"]
