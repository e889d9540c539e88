"""Run folders: which one belongs to a training, and those of version 0.1."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from doap import DoapError, PatchSet
from doap.training import trainer
from doap.training.recipe import RENAMED_KEYS, Recipe
from doap.training.run_folder import DataSpec, check_run, describe_run, read_run, start_run
from doap.training.trainer import train
from support.trainings import SMALL, VALIDATED, same_files, same_weights, stop_after


def test_the_record_of_a_run(patches: PatchSet, tmp_path: Path) -> None:
    source = DataSpec(["photos", "more"], "others")
    info = describe_run(patches, source, "cpu", 2, "fp32", {"model": "t", "sha256": "0"})
    start_run(tmp_path / "run", SMALL, info)
    read = read_run(tmp_path / "run")
    assert (read.source, read.patches, read.device, read.devices) == (source, repr(patches), "cpu", 2)
    assert read.teacher == {"model": "t", "sha256": "0"}
    check_run(tmp_path / "run", SMALL, repr(patches))


def test_folders_of_other_trainings_are_refused(reference: Path, patches: PatchSet, tmp_path: Path) -> None:
    run = shutil.copytree(reference, tmp_path / "run")
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
    with pytest.raises(DoapError, match="not a run folder"):
        train(SMALL, patches, tmp_path)


def write_as_version_0_1(run: Path, recipe: Recipe) -> None:
    """Write the recipe of a run folder with the keys of version 0.1."""
    old_names = {new: old for old, new in RENAMED_KEYS.items()}
    values = {old_names.get(key, key): value for key, value in recipe.model_dump().items()}
    assert "list_size" in values
    (run / "recipe.yaml").write_text(yaml.safe_dump(values, sort_keys=False))


def test_a_run_of_version_0_1_is_resumed_to_the_same_bits(
    validated: Path, patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)
    with pytest.raises(KeyboardInterrupt):
        train(VALIDATED, patches, run, progress=stop_after(0.6))
    write_as_version_0_1(run, VALIDATED)
    train(VALIDATED, patches, run)
    assert same_files(run, validated, "log.csv", "validation.csv", "checkpoint.safetensors", "best.safetensors")
    assert same_weights(run, validated)
    with pytest.raises(DoapError, match="another recipe"):
        train(VALIDATED.model_copy(update={"ema_decay": 0.9}), patches, run)


def test_a_damaged_record_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"data": "x"}))
    with pytest.raises(DoapError, match="not a run folder"):
        read_run(tmp_path)
