"""Interrupted trainings end with the same bits as one that was never interrupted."""

import errno
import json
import os
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

# Trains in one process per argument, and ends it in the middle of an epoch or of a checkpoint, as a power cut would.
# The processes are forked, so that torch and lightning are imported once.
TRAININGS = """
import os, pathlib, signal, sys
import lightning.fabric
from doap import PatchSet
from doap.training import trainer, checkpoint
from doap.training.recipes.reading import read_recipe

trainer.CHECKPOINT_SECONDS = 0
whole = checkpoint.save_file
steps = 0

def train(where, run):
    def count(status):
        global steps
        steps += not status.preparation
        if where == "epoch" and steps == 5:
            os.kill(os.getpid(), signal.SIGKILL)

    def write_half(tensors, path, metadata):
        pathlib.Path(path).write_bytes(b"half of a checkpoint")
        if steps >= 2:
            os.kill(os.getpid(), signal.SIGKILL)
        whole(tensors, path, metadata)

    if where == "checkpoint":
        checkpoint.save_file = write_half
    trainer.train(recipe, patches, pathlib.Path(run), progress=count)

recipe, patches = read_recipe(pathlib.Path(sys.argv[1])), PatchSet.open(sys.argv[2])
for stage in sys.argv[3:]:
    where, run = stage.split(":")
    if (child := os.fork()) == 0:
        train(where, run)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code, *sorted(path.stem for path in pathlib.Path(run).glob("[a-z]*.safetensors")), flush=True)
"""


@pytest.mark.slow
def test_a_training_killed_twice_continues_to_the_same_weights(photo_set: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(SMALL.model_copy(update=L2NET).to_yaml())
    stages = ["never:whole", "epoch:killed", "checkpoint:killed", "never:killed"]
    command = [sys.executable, "-c", TRAININGS, "recipe.yaml", str(photo_set), *stages]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True, timeout=300, check=True
    )
    killed, complete = "-9 checkpoint checkpoint-previous", "0 checkpoint weights"
    assert done.stdout.splitlines() == [complete, killed, killed, complete]
    assert same_weights(tmp_path / "killed", tmp_path / "whole")
    assert read_losses(tmp_path / "killed") == read_losses(tmp_path / "whole")


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
