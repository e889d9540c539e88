import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from doap import DoapError, PatchSet, describe, load
from doap.evaluation.metrics import average_precision
from doap.networks.l2net import L2Net
from doap.patches.assemble import frames_of_photos
from doap.patches.cut import cut_patches
from doap.photos.frames import detect_dog
from doap.training import trainer
from doap.training.recipe import Recipe
from doap.training.trainer import read_losses, train

SMALL = Recipe(width=2, dimensions=16, list_size=128, epochs=2, lr=1.0, dropout=0.1)


@pytest.fixture(scope="module")
def patches(tmp_path_factory: pytest.TempPathFactory, photo: np.ndarray) -> PatchSet:
    path = tmp_path_factory.mktemp("data") / "set"
    halves = [("left", photo[:, :256]), ("right", photo[:, 256:])]
    cut_patches(frames_of_photos(halves, lambda image: detect_dog(image, 150)), path)
    return PatchSet.open(path)


def test_groups_are_cut_from_photos(patches: PatchSet) -> None:
    assert patches.sequence_names == ["left", "right"]
    sizes = np.diff(patches.members_start)
    assert (sizes == 4).all()
    assert patches.labels["level"][patches.members].reshape(-1, 4).tolist() == [[0, 1, 2, 3]] * len(sizes)
    values = patches.take(patches.members).reshape(len(sizes), 4, -1).astype(float)
    values = (values - values.mean(2, keepdims=True)) / np.maximum(values.std(2, keepdims=True), 1)
    own = (values[:, 0] * values[:, 1]).mean(1)
    other = (values[:, 0] * np.roll(values[:, 1], 1, axis=0)).mean(1)
    assert np.median(own) > 0.6 > 0.3 > np.median(other)


def test_training_by_ap_raises_exact_ap_and_leaves_a_whole_run(patches: PatchSet, tmp_path: Path) -> None:
    recipe = Recipe(width=4, dimensions=32, list_size=256, epochs=12, lr=1.0, seed=1)
    model = train(recipe, patches, tmp_path / "run", name="small", origin="two halves")
    torch.manual_seed(recipe.seed)
    untrained = L2Net(32, 4).train()
    assert mean_ap(patches, model.network.eval()) > mean_ap(patches, untrained) + 0.15
    losses = read_losses(tmp_path / "run")
    assert np.mean(losses[-3:]) < 0.5 * np.mean(losses[:3])
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["data"] == "two halves"
    assert set(about["versions"]) == {"doap", "torch", "numpy", "python"}
    again = load(tmp_path / "run" / "weights.safetensors")
    assert (again.name, again.extent) == ("small", 12.0)
    sample = patches.take(range(50))
    np.testing.assert_allclose(describe(sample, again), describe(sample, model), atol=1e-5)


def mean_ap(patches: PatchSet, network: L2Net) -> float:
    """Exact AP by sorting, every patch a query."""
    with torch.no_grad():
        values = network(torch.from_numpy(patches.take(range(len(patches))))[:, None].float())
    vectors = torch.nn.functional.normalize(values, dim=1).numpy()
    distances = 2 - 2 * vectors @ vectors.T
    precisions = []
    for query in range(0, len(patches), 7):
        others = np.arange(len(patches)) != query
        right = patches.groups[others] == patches.groups[query]
        precisions.append(average_precision(distances[query, others], right))
    return float(np.mean(precisions))


@pytest.mark.parametrize("kind", ["real", "binary"])
def test_one_seed_fixes_a_run(kind, patches: PatchSet, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    recipe = SMALL.model_copy(update={"kind": kind})
    first, second = (train(recipe, patches, tmp_path / name).network.state_dict() for name in "ab")
    other = train(recipe.model_copy(update={"seed": 9}), patches, tmp_path / "c").network.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["layers.0.weight"], other["layers.0.weight"])


def test_the_rate_falls_linearly_to_zero(patches: PatchSet, tmp_path: Path) -> None:
    train(SMALL, patches, tmp_path / "run")
    rows = (tmp_path / "run" / "log.csv").read_text().split()[1:]
    rates = [float(row.split(",")[3]) for row in rows]
    expected = SMALL.initial_rate() * (1 - np.arange(len(rates)) / len(rates))
    np.testing.assert_allclose(rates, expected, rtol=1e-4)


TRAINING = """
import os, signal, sys, pathlib
from doap import PatchSet
from doap.training import trainer, checkpoint
from doap.training.recipe import read_recipe

trainer.CHECKPOINT_STEPS = 4
steps = 0

def count(done, loss):
    global steps
    steps += 1
    if where == "epoch" and steps == 7:
        os.kill(os.getpid(), signal.SIGKILL)

def write_half(tensors, path, metadata):
    pathlib.Path(path).write_bytes(b"half of a checkpoint")
    if steps >= 8:
        os.kill(os.getpid(), signal.SIGKILL)
    whole(tensors, path, metadata)

where, data, recipe, run = sys.argv[1:]
if where == "checkpoint":
    whole, checkpoint.save_file = checkpoint.save_file, write_half
trainer.train(read_recipe(pathlib.Path(recipe)), PatchSet.open(data), pathlib.Path(run), progress=count)
"""


@pytest.mark.parametrize("where", ["epoch", "checkpoint"])
def test_a_killed_training_goes_on_to_the_same_weights(patches: PatchSet, tmp_path: Path, where: str) -> None:
    data = str(Path(patches.shards[0].filename).parent)  # type: ignore[attr-defined]
    (tmp_path / "recipe.yaml").write_text(SMALL.to_yaml())

    def run(killed: str, folder: str) -> int:
        """In processes of their own, as users run them, of one thread: with several, sums may round otherwise."""
        command = [sys.executable, "-c", TRAINING, killed, data, str(tmp_path / "recipe.yaml"), str(tmp_path / folder)]
        return subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False).returncode

    assert run("never", "whole") == 0
    assert run(where, "killed") == -signal.SIGKILL
    assert (tmp_path / "killed" / "checkpoint.safetensors").exists()
    assert not (tmp_path / "killed" / "weights.safetensors").exists()
    assert run("never", "killed") == 0
    whole, resumed = (load(tmp_path / run / "weights.safetensors").network.state_dict() for run in ("whole", "killed"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert read_losses(tmp_path / "killed") == read_losses(tmp_path / "whole")


def test_folders_that_do_not_fit_are_refused(patches: PatchSet, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(SMALL, patches, run)
    with pytest.raises(DoapError, match="this training is complete"):
        train(SMALL, patches, run)
    (run / "weights.safetensors").unlink()
    with pytest.raises(DoapError, match="another recipe"):
        train(SMALL.model_copy(update={"epochs": 9}), patches, run)
    with pytest.raises(DoapError, match="another set"):
        train(SMALL, PatchSet([patches.take(range(400))], np.arange(400) // 4), run)
    (run / "checkpoint.safetensors").write_bytes(b"not this")
    with pytest.raises(DoapError, match="not a checkpoint"):
        train(SMALL, patches, run)
    with pytest.raises(DoapError, match="not the folder of a run"):
        train(SMALL, patches, tmp_path)


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_checkpoint(
    patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "CHECKPOINT_STEPS", 2)
    calls = 0

    class Failing(trainer.AveragePrecisionLoss):
        def forward(self, *arguments: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            return super().forward(*arguments) * (float("nan") if calls == 4 else 1)

    monkeypatch.setattr(trainer, "AveragePrecisionLoss", Failing)
    with pytest.raises(DoapError, match="the loss is nan at batch 3 of epoch 0"):
        train(SMALL, patches, tmp_path / "run")
    monkeypatch.undo()
    kept = train(SMALL, patches, tmp_path / "run").network.state_dict()
    assert all(torch.isfinite(value).all() for value in kept.values())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_training_on_the_gpu(patches: PatchSet, tmp_path: Path) -> None:
    model = train(SMALL, patches, tmp_path / "run", device="cuda")
    losses = read_losses(tmp_path / "run")
    assert losses[-1] < losses[0]
    assert describe(patches.take(range(9)), model).shape == (9, 16)


def test_training_on_frames_goes_on_to_the_same_weights(
    photo: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = frames_of_photos([("photo", photo)], lambda image: detect_dog(image, 160))
    recipe = SMALL.model_copy(update={"views": 4, "augment": True, "epochs": 3})
    whole = train(recipe, frames, tmp_path / "whole")
    losses = read_losses(tmp_path / "whole")
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 0.1
    monkeypatch.setattr(trainer, "CHECKPOINT_STEPS", 2)

    def stop(done: float, _loss: float) -> None:
        if done > 0.6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(recipe, frames, tmp_path / "stopped", progress=stop)
    again = train(recipe, frames, tmp_path / "stopped").network.state_dict()
    assert all(torch.equal(value, again[name]) for name, value in whole.network.state_dict().items())
