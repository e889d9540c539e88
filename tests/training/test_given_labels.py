"""Trainings with mined labels: those of the recipe's settings, and those of a file."""

from pathlib import Path

import numpy as np
import pytest
import torch

from doap import DoapError, PatchSet
from doap.datasets.label_mining.mining import MinedLabels, mine_labels
from doap.datasets.label_mining.settings import MiningSettings
from doap.training import trainer
from doap.training.run_folder import MINED
from doap.training.trainer import train
from support.trainings import SMALL, same_files, same_weights, stop_after

MINING = SMALL.model_copy(
    update={
        "label_mining": True,
        "sampling": "sequence-pairs",
        "epochs": 4,
        "mining_clusters": 6,
        "mining_percentile": 40.0,
        "seed": 3,
    }
)
SETTINGS = MiningSettings(6, 40.0, 3)


def mine(patches: PatchSet, settings: MiningSettings = SETTINGS) -> MinedLabels:
    return mine_labels(patches, lambda indices: torch.from_numpy(patches.take(indices)), settings)


@pytest.fixture
def mined(patches: PatchSet, tmp_path: Path) -> Path:
    """File of the labels that the recipe would mine."""
    mine(patches).save(tmp_path / "labels.npz", patches)
    return tmp_path / "labels.npz"


def test_a_file_trains_what_the_recipe_mines(patches: PatchSet, mined: Path, tmp_path: Path) -> None:
    train(MINING, patches, tmp_path / "own")
    own = MinedLabels.load(tmp_path / "own" / MINED, patches, SETTINGS)
    assert own.settings == SETTINGS
    np.testing.assert_array_equal(own.clusters, mine(patches).clusters)
    train(MINING, patches, tmp_path / "given", mined=mined)
    assert (tmp_path / "given" / MINED).read_bytes() == mined.read_bytes()
    assert same_weights(tmp_path / "own", tmp_path / "given")
    assert same_files(tmp_path / "own", tmp_path / "given", "log.csv")


def test_the_settings_change_the_training(patches: PatchSet, tmp_path: Path) -> None:
    train(MINING, patches, tmp_path / "some")
    train(MINING.model_copy(update={"mining_percentile": 100.0}), patches, tmp_path / "all")
    assert MinedLabels.load(tmp_path / "all" / MINED, patches).near.all()  # the threshold is the largest distance
    assert not same_weights(tmp_path / "some", tmp_path / "all")


def test_a_resumed_run_uses_its_copy(
    patches: PatchSet, mined: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = mine(patches)
    other.near[:] = True  # not what the recipe would mine, so that mining again would show
    other.save(mined, patches)
    train(MINING, patches, tmp_path / "whole", mined=mined)
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0)
    with pytest.raises(KeyboardInterrupt):
        train(MINING, patches, tmp_path / "run", mined=mined, progress=stop_after(0.4))
    with pytest.raises(DoapError, match=r"run: was not started with the mined labels .*again\.npz"):
        mine(patches).save(tmp_path / "again.npz", patches)
        train(MINING, patches, tmp_path / "run", mined=tmp_path / "again.npz")
    mined.unlink()
    train(MINING, patches, tmp_path / "run")
    assert same_weights(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"label_mining": False, "mining_clusters": 100, "mining_percentile": 20.0},
            "mines no labels; set label_mining",
        ),
        ({"mining_clusters": 7}, "mined with clusters 6, but the recipe has 7"),
        ({"mining_percentile": 20.0}, "mined with percentile 40, but the recipe has 20"),
        ({"seed": 4}, "mined with seed 3, but the recipe has 4"),
        ({"val_fraction": 0.5}, r"which val_fraction=0\.5 splits"),
    ],
)
def test_a_file_that_does_not_fit_the_recipe_is_one_line(
    patches: PatchSet, mined: Path, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(DoapError, match=rf"labels\.npz: .*{message}") as caught:
        train(MINING.model_copy(update=changes), patches, tmp_path / "run", mined=mined)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_labels_of_another_set_are_one_line(patches: PatchSet, mined: Path, tmp_path: Path) -> None:
    left = patches.select(patches.sequences == 0)
    with pytest.raises(DoapError, match=r"labels\.npz: mined from another set"):
        train(MINING, left, tmp_path / "run", mined=mined)
    assert not (tmp_path / "run").exists()
