"""A centre-surround network that reads a patch at two extents, from the training to the use."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from doap import FrameSet, detect_and_describe, extract_patches, load
from doap.bridges.onnx import export_model
from doap.networks.centre_surround import CentreSurround
from doap.training.recipe import read_recipe
from doap.training.trainer import train
from doap.types import Grey

SMALL = ["width=2", "dimensions=16", "batch_size=40", "views_per_group=2", "sampling=groups", "source_weights=null",
         "epochs=1", "val_fraction=0.5", "precision=fp32"]  # fmt: skip


@pytest.fixture(scope="module")
def model_path(frames: FrameSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a short training of the shipped recipe."""
    run = tmp_path_factory.mktemp("two-extents") / "run"
    train(read_recipe("frames-two-extents-real", SMALL), frames, run)
    return run / "weights.safetensors"


def test_keypoints_are_described_at_both_extents(model_path: Path, photo: Grey) -> None:
    model = load(model_path, fast=False)
    assert isinstance(model.network, CentreSurround)
    assert (model.extent, model.input_size) == (24.0, 64)
    features = detect_and_describe(photo, model, max_keypoints=50)
    centre, surround = (
        torch.from_numpy(extract_patches(photo, features.frames, 32, extent))[:, None].float() for extent in (12, 24)
    )
    with torch.no_grad():
        towers = [model.network.centre(centre), model.network.surround(surround)]
    found, expected = torch.from_numpy(features.descriptors), F.normalize(torch.cat(towers, 1))
    # The centre is the patch of extent 12, but for single pixels that are rounded differently.
    torch.testing.assert_close(F.normalize(found[:, :8]), F.normalize(towers[0]), atol=5e-3, rtol=0)
    # The surround is that of 24, but for the filter that halves it.
    assert (found * expected).sum(1).median() > 0.95


@pytest.mark.slow
def test_the_model_is_exported(model_path: Path, photo: Grey, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    export_model(model_path, tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    model = load(model_path, fast=False)
    features = detect_and_describe(photo, model, max_keypoints=20)
    patches = extract_patches(photo, features.frames, 64, 24.0)
    (name,) = (value.name for value in session.get_inputs())
    descriptors = session.run(None, {name: patches})[0]
    assert np.abs(descriptors - features.descriptors).max() < 1e-4
