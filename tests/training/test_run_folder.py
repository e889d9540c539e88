"""Run folders: which one belongs to a training, and those of version 0.1."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from doap import DoapError, PatchSet
from doap.locking import only_writer
from doap.training import trainer
from doap.training.curves import draw_run
from doap.training.log import Status
from doap.training.recipes.reading import RENAMED_KEYS
from doap.training.recipes.recipe import Recipe
from doap.training.run_folder import (
    DataSpec,
    check_run,
    describe_run,
    is_complete,
    is_unstarted,
    read_run,
    start_run,
)
from doap.training.trainer import train
from support.trainings import SMALL, VALIDATED, noisy_patches, same_files, same_weights, stop_after


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


def test_a_run_is_not_resumed_on_a_set_that_was_built_again(
    patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, run = tmp_path / "set", tmp_path / "run"
    patches.save(folder)
    source = DataSpec([str(folder)])
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)
    with pytest.raises(KeyboardInterrupt):
        train(SMALL, PatchSet.open(folder), run, source=source, progress=stop_after(0.5))
    shutil.rmtree(folder)
    PatchSet(patches.shards, patches.groups, patches.sequences, extent=2 * patches.extent).save(folder)
    changed = PatchSet.open(folder)
    assert repr(changed) == repr(patches)
    with pytest.raises(DoapError, match="its training set has changed since; restore the set, or choose another"):
        train(SMALL, changed, run, source=source)
    patches.save(tmp_path / "moved")
    train(SMALL, PatchSet.open(tmp_path / "moved"), run, source=DataSpec([str(tmp_path / "moved")]))
    assert is_complete(run)


def test_a_run_is_not_resumed_with_a_validation_set_that_was_built_again(patches: PatchSet, tmp_path: Path) -> None:
    folder, run = tmp_path / "val", tmp_path / "run"
    patches.save(folder)
    source = DataSpec(validation=str(folder))
    with pytest.raises(KeyboardInterrupt):
        train(SMALL, patches, run, source=source, validation=PatchSet.open(folder), progress=stop_after(0.5))
    shutil.rmtree(folder)
    PatchSet(patches.shards, patches.groups, patches.sequences, extent=2 * patches.extent).save(folder)
    with pytest.raises(DoapError, match="its validation set has changed since; restore the set, or choose another"):
        train(SMALL, patches, run, source=source, validation=PatchSet.open(folder))
    record = json.loads((run / "run.json").read_text())
    assert record.pop("validation_fingerprint") != source.fingerprint_validation(PatchSet.open(folder))
    (run / "run.json").write_text(json.dumps(record))  # as of an earlier version
    train(SMALL, patches, run, source=source, validation=PatchSet.open(folder))
    assert is_complete(run)


def test_a_run_of_an_earlier_version_has_no_fingerprint(patches: PatchSet, tmp_path: Path) -> None:
    patches.save(tmp_path / "set")
    source, run = DataSpec([str(tmp_path / "set")]), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(SMALL, PatchSet.open(tmp_path / "set"), run, source=source, progress=stop_after(0.5))
    record = json.loads((run / "run.json").read_text())
    assert record.pop("fingerprint") == source.fingerprint(patches)
    (run / "run.json").write_text(json.dumps(record))
    train(SMALL, PatchSet.open(tmp_path / "set"), run, source=source)
    assert is_complete(run)


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


RECORD = {"data": "x", "validation": "", "patches": "p", "device": "cpu", "devices": 1}


@pytest.mark.parametrize(
    "content",
    [
        json.dumps({"data": "x"}).encode(),
        json.dumps({**RECORD, "devices": 0}).encode(),
        json.dumps({**RECORD, "data": "d\xe4p"}, ensure_ascii=False).encode("latin-1"),
        100_000 * b"[",
    ],
    ids=["keys", "devices", "latin-1", "nested"],
)
def test_a_damaged_record_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(DoapError, match=r"not a run folder, or its run\.json is damaged; choose another folder$"):
        read_run(tmp_path)


def test_two_processes_do_not_train_in_one_folder(reference: Path, patches: PatchSet, tmp_path: Path) -> None:
    refused: list[str] = []

    def train_again(status: Status) -> None:
        if not status.preparation and not refused:
            with pytest.raises(DoapError) as caught:
                train(SMALL, patches, tmp_path / "link" / "run")
            refused.append(str(caught.value))

    (tmp_path / "link").symlink_to(tmp_path)
    model = train(SMALL, patches, tmp_path / "run", progress=train_again)
    assert refused == [f"{tmp_path}/link/run: another process is writing it; wait for it, or choose another output"]
    assert same_weights(model, reference)
    assert not (tmp_path / "run" / ".lock").exists()


def test_the_lock_of_a_killed_training_is_free(reference: Path, patches: PatchSet, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").touch()
    assert same_weights(train(SMALL, patches, tmp_path / "run"), reference)


def test_only_rank_zero_locks(patches: PatchSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start_run(tmp_path / "run", SMALL, describe_run(patches, DataSpec(), "cpu", 1, "fp32"))
    monkeypatch.setenv("RANK", "1")
    with only_writer(tmp_path / "run", inside=True):  # as rank zero holds it
        train(SMALL.model_copy(update={"epochs": 1}), patches, tmp_path / "run")


def test_a_training_stopped_before_its_first_step_does_not_block_its_folder(
    reference: Path, patches: PatchSet, tmp_path: Path
) -> None:
    def stop(_status: Status) -> None:
        raise KeyboardInterrupt

    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(SMALL.model_copy(update={"label_mining": True, "mining_clusters": 4}), patches, run, progress=stop)
    assert (run / "run.json").exists()
    assert is_unstarted(run)
    assert same_weights(train(SMALL, patches, run), reference)
    assert not is_unstarted(run)


@pytest.mark.parametrize("names", [[], [".DS_Store"]], ids=["empty", "hidden"])
def test_an_empty_folder_is_used(patches: PatchSet, tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).touch()
    train(SMALL.model_copy(update={"epochs": 1}), patches, tmp_path)
    assert is_complete(tmp_path)


@pytest.mark.parametrize("name", ["recipe.yaml", "photo.jpg", "log.csv"])
def test_a_folder_with_files_of_the_user_is_refused(patches: PatchSet, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(DoapError, match="exists and is not a run folder"):
        train(SMALL, patches, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_a_run_with_steps_is_not_replaced(patches: PatchSet, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(SMALL, patches, tmp_path / "run", progress=stop_after(0.3))
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()
    with pytest.raises(DoapError, match="another recipe"):
        train(SMALL.model_copy(update={"lr": 0.5}), patches, tmp_path / "run")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"val_fraction": 0.5, "in_sequence_negatives": False}, "has no negatives of other sequences"),
        ({"width": 4096, "dimensions": 65536, "network": "l2net"}, "give a network of .* parameters; lower them"),
        ({"batch_size": 5000}, "lower batch_size"),
    ],
    ids=["validation", "network", "batches"],
)
def test_nothing_is_written_for_a_recipe_that_cannot_be_trained(
    patches: PatchSet, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(DoapError, match=message):
        train(SMALL.model_copy(update=settings), patches, tmp_path / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("device", ["meta", "vulkan", "gpu", "cuda:99"])
def test_nothing_is_written_for_a_device_that_cannot_compute(patches: PatchSet, tmp_path: Path, device: str) -> None:
    with pytest.raises(DoapError, match=f"^device {device}: ") as caught:
        train(SMALL, patches, tmp_path / "run", device=device)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_set_with_an_extent_that_no_model_can_have(tmp_path: Path) -> None:
    data = noisy_patches()
    data.extent = math.inf
    with pytest.raises(DoapError, match="the extent of the set must be positive and finite, up to 1000, not inf"):
        train(SMALL, data, tmp_path / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("log.csv", b"0,one,0.5,0.1"),
        ("log.csv", b"0,1,0.5"),
        ("log.csv", b"0,-1,0.5,0.1"),
        ("log.csv", b"0,1,\xff,0.1"),
        ("log.csv", b"0,1,\x00,0.1"),
        ("log.csv", b""),
        ("validation.csv", b"0,half"),
    ],
)
def test_a_damaged_log_is_one_line(validated: Path, patches: PatchSet, tmp_path: Path, file: str, line: bytes) -> None:
    run = shutil.copytree(validated, tmp_path / "run")
    (run / "weights.json").unlink()
    lines = (run / file).read_bytes().split(b"\n")
    (run / file).write_bytes(b"\n".join([*lines[:2], line, *lines[2:]]))
    with pytest.raises(DoapError, match=rf"run/{file}: line 3 is damaged; remove the file, no weights depend on it$"):
        train(VALIDATED, patches, run)
    (run / file).unlink()
    assert same_weights(train(VALIDATED, patches, run), validated)
    draw_run(run)
