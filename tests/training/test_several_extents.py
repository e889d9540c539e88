"""A network that reads a patch at two or three extents, from the training to the use."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from doap import FrameSet, detect_and_describe, extract_patches, load
from doap.bridges.onnx import export_model
from doap.evaluation.harness.methods import open_methods
from doap.networks.l2net import L2Net
from doap.networks.network import StackExtents, normalise
from doap.training.recipes.reading import read_recipe
from doap.training.trainer import train
from doap.types import Grey

SMALL = ["width=2", "dimensions=16", "batch_size=40", "views_per_group=2", "sampling=groups", "source_weights=null",
         "epochs=1", "val_fraction=0.5", "precision=fp32", "prefixes=[8]", "teacher=null"]  # fmt: skip


def train_small(run: Path, frames: FrameSet, *settings: str) -> Path:
    """Return the weights of a short training of the shipped recipe."""
    train(read_recipe("frames-surround-real", [*SMALL, *settings]), frames, run)
    return run / "weights.safetensors"


@pytest.fixture(scope="module")
def model_path(frames: FrameSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_small(tmp_path_factory.mktemp("two-extents") / "run", frames)


@pytest.mark.parametrize(("surround", "extents"), [(1, [17, 34]), (2, [8.5, 17, 34])])
def test_keypoints_are_described_at_all_extents(
    surround: int, extents: list[float], frames: FrameSet, photo: Grey, tmp_path: Path
) -> None:
    model = load(train_small(tmp_path / "run", frames, f"surround={surround}"), fast=False)
    assert isinstance(model.network, L2Net)
    assert (model.extent, model.input_size) == (34.0, 32 * 2**surround)
    assert model.extent_at(8.5, "dog") == 8.5 * 2**surround
    features = detect_and_describe(photo, model, max_keypoints=50)
    patches = [torch.from_numpy(extract_patches(photo, features.frames, 32, extent)) for extent in extents]
    end = next(index for index, layer in enumerate(model.network.layers) if isinstance(layer, StackExtents))
    parts = torch.stack(patches, 1).flatten(0, 1)[:, None].float()
    with torch.no_grad():
        expected = F.normalize(model.network.layers[end:](model.network.layers[:end](normalise(parts))).flatten(1))
    # The parts are the patches of these extents, but for rounding and the filter that halves them.
    assert (torch.from_numpy(features.descriptors) * expected).sum(1).median() > 0.98


def test_a_given_extent_is_that_of_the_centre_in_benchmarks(model_path: Path) -> None:
    methods = open_methods([str(model_path), "rootsift"], "cpu", 12.0)
    assert [method.extent for method in methods] == [24.0, 12.0]
    (own,) = open_methods([str(model_path)], "cpu")
    assert own.extent == 34.0


@pytest.mark.slow
def test_the_model_is_exported(model_path: Path, photo: Grey, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    export_model(model_path, tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    model = load(model_path, fast=False)
    features = detect_and_describe(photo, model, max_keypoints=20)
    patches = extract_patches(photo, features.frames, 64, 34.0)
    (name,) = (value.name for value in session.get_inputs())
    descriptors = session.run(None, {name: patches})[0]
    assert np.abs(descriptors - features.descriptors).max() < 1e-4
