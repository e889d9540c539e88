"""Interrupted trainings end with the same bits as one that was never interrupted."""

import errno
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.torch import save_file

from doap import FrameSet, PatchSet
from doap.training import checkpoint, trainer
from doap.training.log import read_losses
from doap.training.trainer import train
from support.trainings import L2NET, SMALL, same_files, same_weights, stop_after

# Trains, and ends the process in the middle of an epoch or of a checkpoint, as a power cut would.
TRAINING = """
import os, signal, sys, pathlib
from doap import PatchSet
from doap.training import trainer, checkpoint
from doap.training.recipe import read_recipe

trainer.CHECKPOINT_SECONDS = 0
steps = 0

def count(status):
    global steps
    steps += not status.preparation
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


def train_in_process(where: str, data: Path, folder: Path) -> int:
    """Train in a process of its own, as users do; returns its exit status."""
    folder.parent.mkdir(exist_ok=True)
    recipe = folder.parent / "recipe.yaml"
    recipe.write_text(SMALL.model_copy(update=L2NET).to_yaml())
    command = [sys.executable, "-c", TRAINING, where, str(data), str(recipe), str(folder)]
    return subprocess.run(command, check=False).returncode


@pytest.fixture(scope="module")
def whole_process(photo_set: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folder of a process that was not killed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert train_in_process("never", photo_set, folder) == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("where", ["epoch", "checkpoint"])
def test_a_killed_training_continues_to_the_same_weights(
    photo_set: Path, whole_process: Path, tmp_path: Path, where: str
) -> None:
    killed = tmp_path / "killed"
    assert train_in_process(where, photo_set, killed) == -signal.SIGKILL
    assert (killed / "checkpoint.safetensors").exists()
    assert not (killed / "weights.safetensors").exists()
    assert train_in_process("never", photo_set, killed) == 0
    assert same_weights(killed, whole_process)
    assert read_losses(killed) == read_losses(whole_process)


def test_a_full_disk_loses_no_earlier_checkpoint(
    reference: Path, patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)
    writes = 0

    def full(tensors: dict[str, Any], path: Path, metadata: dict[str, str]) -> None:
        nonlocal writes
        writes += 1
        if writes == 6:
            Path(path).write_bytes(b"as much as there was space for")
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        save_file(tensors, path, metadata)

    run = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "save_file", full)
        with pytest.raises(OSError, match="No space left"):
            train(SMALL, patches, run)
    with safe_open(run / "checkpoint.safetensors", framework="pt") as file:
        assert json.loads(file.metadata()["place"])["batch"] == 5
    assert not [path for path in run.iterdir() if path.name.startswith(".")]
    assert same_weights(train(SMALL, patches, run), reference)


@pytest.mark.parametrize("settings", [{}, {"zoom": 1.0, "ema_decay": 0.5}], ids=["plain", "zoom"])
def test_training_on_frames_resumes_to_the_same_weights(
    frames: FrameSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    recipe = SMALL.model_copy(update={"views_per_group": 4, "augment": True, "epochs": 3, **settings})
    whole = train(recipe, frames, tmp_path / "whole")
    losses = read_losses(tmp_path / "whole")
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 0.1
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, frames, tmp_path / "stopped", progress=stop_after(0.6))
    assert same_weights(train(recipe, frames, tmp_path / "stopped"), whole)
    assert same_files(tmp_path / "stopped", tmp_path / "whole", "log.csv")
