from pathlib import Path

import numpy as np
import pytest
import torch

from doap import DoapError, FrameSet, PatchSet, load
from doap.datasets.sets.united_set import UnitedSet
from doap.training import trainer
from doap.training.data_cache import DataCache, split_val
from doap.training.log import read_validation
from doap.training.trainer import train
from doap.training.validation import CommonValidation, Validation, check_disjoint, check_validation
from support.trainings import SMALL, VALIDATED, noisy_patches, same_files, stop_after


def test_validation_scenes_are_evaluated_and_the_best_weights_saved(validated: Path, patches: PatchSet) -> None:
    rows = read_validation(validated)
    assert [epoch for epoch, _ in rows] == [0, 1, 2]
    training, data = split_val(patches, VALIDATED)
    assert not set(training.sequences) & set(data.sequences)
    assert len(training) + len(data) == len(patches)
    validation = Validation(data, VALIDATED, torch.device("cpu"), 32)
    best = validation.average_precision(load(validated / "best.safetensors", fast=False).network)
    assert best == pytest.approx(max(ap for _, ap in rows), abs=1e-6)
    last = validation.average_precision(load(validated / "weights.safetensors", fast=False).network)
    assert last == pytest.approx(rows[-1][1], abs=1e-6)
    assert list((validated / "tensorboard").iterdir())


def test_a_run_with_validation_resumes_to_the_same_files(
    patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = SMALL.model_copy(update={"val_fraction": 0.5, "epochs": 3})
    train(recipe, patches, tmp_path / "whole")
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, patches, tmp_path / "stopped", progress=stop_after(0.6))
    train(recipe, patches, tmp_path / "stopped")
    names = ("log.csv", "validation.csv", "best.safetensors", "weights.safetensors")
    assert same_files(tmp_path / "stopped", tmp_path / "whole", *names)


def test_a_set_of_one_scene_is_refused_before_there_is_a_run(tmp_path: Path) -> None:
    patches = noisy_patches(sequences=1)
    with pytest.raises(DoapError, match=r"val_fraction=0.5: a split keeps scenes whole.* with --set val_fraction=0"):
        train(VALIDATED, patches, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_frame_set_needs_views_for_the_validation_too(noise: PatchSet, frames: FrameSet, tmp_path: Path) -> None:
    with pytest.raises(DoapError, match=r"^validation: a frame set needs views_per_group; .*; or leave out --val$"):
        train(SMALL, noise, tmp_path / "run", validation=frames)
    assert not (tmp_path / "run").exists()


def test_errors_name_the_validation_set_and_how_to_do_without_it() -> None:
    single = PatchSet([np.zeros((4, 32, 32), np.uint8)], np.arange(4), np.arange(4))  # no patch has a match
    with pytest.raises(DoapError, match=r"^validation: no group of this set has two .*; or set val_fraction=0$"):
        check_validation(single, SMALL, "set val_fraction=0")
    with pytest.raises(DoapError, match=r"^validation: no group of this set has two .*; or leave out --val$"):
        check_validation(single, SMALL, "leave out --val")


def test_a_set_for_several_trainings_is_checked_before_the_first() -> None:
    single = PatchSet([np.zeros((4, 32, 32), np.uint8)], np.arange(4), np.arange(4))  # no patch has a match
    with pytest.raises(DoapError, match=r"^validation: no group of this set has two .*; or use another set$"):
        CommonValidation(single, SMALL, "cpu", DataCache())


def test_sequences_of_both_sets_are_refused_by_name_and_content(frames: FrameSet) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 8), dtype=np.uint8)
    ids, names = np.arange(8) // 4, ["a", "b"]
    patches, others = (PatchSet([part], ids, ids, sequence_names=names) for part in pixels)
    for data, error in ((patches, "a"), (patches.select(ids == 1), "b"), (frames, frames.sequence_names[0])):
        with pytest.raises(DoapError, match=rf"^val: its sequence {error} would be both trained and validated on; "):
            check_disjoint(data, frames if data is frames else patches, "val")
    # A union renames the sequences of its parts, and resizes their patches.
    larger = PatchSet([np.zeros((2, 16, 16), np.uint8)], np.arange(2), np.arange(2), sequence_names=names)
    with pytest.raises(DoapError, match=r"^val: its sequence b would be both trained and validated on; "):
        check_disjoint(UnitedSet([larger, patches], ["larger", "patches"]), patches.select(ids == 1), "val")
    check_disjoint(UnitedSet([larger, others], ["larger", "others"]), patches, "val")
    check_disjoint(patches, others, "val")  # of the same names
    check_disjoint(patches.select(ids == 0), patches.select(ids == 1), "val")
    check_disjoint(patches, frames, "val")
    check_disjoint(PatchSet([pixels[0]], ids, ids), patches, "val")  # without names
