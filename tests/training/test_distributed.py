import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from doap import PatchSet, load
from doap.training.distributed import is_rank_zero, launcher_processes
from doap.training.log import read_losses
from doap.training.recipe import Recipe
from doap.training.trainer import train


@pytest.fixture
def patches(tmp_path: Path) -> PatchSet:
    """60 groups of different sizes in 3 sequences, some of which overlap."""
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(60), random.integers(2, 6, 60))
    shapes = random.integers(0, 256, (60, 8, 8)).repeat(4, 1).repeat(4, 2)
    pixels = shapes[groups] + random.normal(0, 40, (len(groups), 32, 32))
    overlaps = np.array([[0, 1], [5, 9], [30, 31]])
    patches = PatchSet([pixels.clip(0, 255).astype(np.uint8)], groups, groups // 20, overlaps=overlaps)
    patches.save(tmp_path / "set")
    return patches


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "binary", "pooled_weight": 1.0},
        {"objective": "hardnet"},
        {"objective": "l2net"},
        {"teacher": "doap-demo-128", "distillation_weight": 5.0, "network": "tiny"},
        {"teacher": "doap-demo-128", "distillation_weight": 5.0, "network": "tiny", "dimensions": 128},
    ],
    ids=["ap", "hardnet", "l2net", "tiny-similarity", "tiny-imitation"],
)
def test_two_processes_train_what_one_does(patches: PatchSet, tmp_path: Path, settings: dict[str, Any]) -> None:
    common = {"width": 2, "dimensions": 16, "batch_size": 80, "epochs": 1, "dropout": 0.2, "augment": True}
    recipe = Recipe.model_validate({**common, "precision": "fp32", **settings})
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml())
    states = []
    for number, output in enumerate(("one", "two"), 1):  # both in fresh processes: what else one has done is no noise
        done = train_in_processes(tmp_path, number, output)
        assert done.returncode == 0, done.stderr
        states.append(load(tmp_path / output / "weights.safetensors", fast=False).network.state_dict())
    one, two = states
    start = train(recipe.model_copy(update={"lr": 1e-9}), patches, tmp_path / "start").network.state_dict()
    np.testing.assert_allclose(read_losses(tmp_path / "two"), read_losses(tmp_path / "one"), rtol=1e-3)
    for name, value in one.items():
        if name.endswith("weight"):  # noise, though it grows where an activation falls on either side of 0
            moved = (value - start[name]).norm()
            assert (two[name] - value).norm() < 0.05 * moved
        else:
            torch.testing.assert_close(two[name], value, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_two_processes_with_batches_in_chunks(patches: PatchSet, tmp_path: Path) -> None:
    """Ranks have different numbers of chunks, but rank one common batch."""
    recipe = Recipe(width=2, dimensions=16, batch_size=83, epochs=4, lr=2.0, chunk=41, precision="fp32")
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml())
    done = train_in_processes(tmp_path, 2, "two")
    assert done.returncode == 0, done.stderr
    losses = read_losses(tmp_path / "two")
    first = recipe.model_copy(update={"chunk": None, "epochs": 1})
    train(first, patches, tmp_path / "one")
    assert losses[0] == pytest.approx(read_losses(tmp_path / "one")[0], abs=0.06)
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 0.03


def train_in_processes(folder: Path, number: int, output: str) -> "subprocess.CompletedProcess[str]":
    """Run `doap train` on the recipe and set in a folder, as a script that can start more processes."""
    (folder / "run_doap.py").write_text("from doap.cli.main import main\n\nmain()\n")
    words = ["train", "recipe.yaml", "--data", "set", "-o", output, "--device", "cpu", "--devices", str(number)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "run_doap.py", *words]
    return subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)


def test_processes_of_launchers_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHELASTIC_RUN_ID", "SLURM_NTASKS", "RANK", "SLURM_PROCID", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert launcher_processes() is None
    assert is_rank_zero()
    monkeypatch.setenv("SLURM_NTASKS", "8")
    monkeypatch.setenv("SLURM_NNODES", "2")
    monkeypatch.setenv("SLURM_PROCID", "3")
    assert launcher_processes() == (4, 2)
    assert not is_rank_zero()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("WORLD_SIZE", "6")
    monkeypatch.setenv("RANK", "0")
    assert launcher_processes() == (2, 3)
    assert is_rank_zero()
