import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from doap import PatchSet
from doap.cli.main import app, main
from doap.datasets.label_mining.mining import MinedLabels, count_pairs
from doap.datasets.label_mining.settings import MiningSettings
from doap.training.run_folder import MINED
from doap.training.trainer import train
from support.command_line import Doap
from support.figures import record_figures
from support.sets.small_frame_set import small_frame_set
from support.sets.small_official_sets import make_hpatches, make_rome, make_sequences
from support.trainings import SMALL, same_weights


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PatchSet:
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (120, 32, 32), dtype=np.uint8)
    groups = np.arange(120) // 4
    patches = PatchSet([pixels], groups, groups % 2, sequence_names=["north", "south"])
    patches.save("set")
    return patches


def test_help_has_an_example() -> None:
    result = CliRunner().invoke(app, ["data", "mine", "--help"])
    assert result.exit_code == 0
    assert "Example: doap data mine" in " ".join(result.output.split())


def test_mines_counts_draws_and_saves(saved: PatchSet) -> None:
    options = ["-o", "out/clusters.png", "--clusters", "8", "--percentile", "30", "--save", "out/mined.npz"]
    result = CliRunner().invoke(app, ["data", "mine", "set", *options])
    assert result.exit_code == 0, result.output
    mined = MinedLabels.load("out/mined.npz", saved)
    assert mined.settings == MiningSettings(8, 30, 0)
    negatives, ignored = count_pairs(mined, saved)
    for name, far, near in zip(("north", "south"), negatives, ignored, strict=True):
        assert f"{name}: {far:,} pairs of patches are negatives, {near:,}" in result.output
    assert (negatives + ignored).tolist() == [60 * 59 // 2 - 15 * 6] * 2
    with Image.open("out/clusters.png") as image:
        assert image.width > 1200


def test_a_frame_set_is_mined_without_jitter_as_in_a_training(
    doap: Doap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = record_figures(monkeypatch)
    whole = small_frame_set()
    frames = whole.select(whole.sequences < 2)
    frames.save(tmp_path / "frames")
    words = ("data", "mine", "frames", "-o", "c.png", "--save", "m.npz", "--clusters", 5, "--device", "cpu")
    status, shown, errors = doap(*words, "--sequence", frames.sequence_names[0])
    assert (status, errors) == (0, "")
    assert f"{frames.sequence_names[0]}: " in shown
    assert len(figures[0].axes) == 1
    recipe = SMALL.model_copy(
        update={"label_mining": True, "mining_clusters": 5, "views_per_group": 2, "epochs": 1, "batch_size": 64}
    )
    train(recipe, frames, tmp_path / "run")
    own, saved = MinedLabels.load(tmp_path / "run" / MINED, frames), MinedLabels.load(tmp_path / "m.npz", frames)
    np.testing.assert_array_equal(own.clusters, saved.clusters)
    assert own.settings == saved.settings


@pytest.mark.parametrize("split", ["a", None])
def test_labels_of_a_split_of_hpatches_train_it(
    doap: Doap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str | None
) -> None:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    folder = make_hpatches(tmp_path / "hpatches", patches=4)
    images = make_sequences(tmp_path / "images", ("v_three",))
    splits = {"a": {"name": "a", "train": ["i_one", "v_three"], "test": ["v_two"]}}
    (folder / "splits.json").write_text(json.dumps(splits))
    settings = {"label_mining": True, "sampling": "sequence-pairs", "batch_size": 64, "mining_clusters": 5, "seed": 1}
    (tmp_path / "r.yaml").write_text(SMALL.model_copy(update=settings).to_yaml())
    chosen = ("--split", split) if split else ()
    status, shown, errors = doap("data", "mine", folder, *chosen, "-o", "c.png", "--save", "m.npz",
                                 "--clusters", 5, "--seed", 1, "--images", images, "--device", "cpu")  # fmt: skip
    assert (status, errors) == (0, "")
    assert ("v_two: " in shown) == (split is None)
    words = ("train", "r.yaml", "--data", folder, "--split", "a", "--device", "cpu", "-o")
    status, _, errors = doap(*words, "given", "--mined", "m.npz")
    if split is None:
        assert (status, errors) == (1, "doap: m.npz: mined from another set; mine the labels of the training set\n")
        assert not (tmp_path / "given").exists()
        return
    assert (status, errors) == (0, "")
    assert doap(*words, "own")[0] == 0
    assert same_weights(tmp_path / "given", tmp_path / "own")
    assert doap("train", "--resume", "given", "--mined", "m.npz")[0] == 1
    status, _, errors = doap(*words, "other", "--mined", "m.npz", "--set", "mining_percentile=30")
    assert (status, errors.count("\n")) == (1, 1)
    assert "m.npz: mined with percentile 20, but the recipe has 30" in errors
    status, _, errors = doap(*words, "other", "--mined", "m.npz", "--set", "label_mining=false",
                             "--set", "mining_clusters=100")  # fmt: skip
    assert (status, errors.count("\n")) == (1, 1)
    assert "m.npz: the recipe mines no labels" in errors


def test_labels_of_the_training_half_of_romepatches(
    doap: Doap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    make_rome(tmp_path / "rome")
    status, shown, _ = doap("data", "mine", "rome", "--split", "train", "-o", "c.png", "--device", "cpu")
    assert status == 0
    assert "train: " in shown
    assert "test: " not in shown


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere", "-o", "a.png"), "not a patch set"),
        (("set", "-o", "a.doc"), "figures are written as"),
        (("set", "-o", "a.png", "--save", "mined"), "written as .npz"),
        (("set", "-o", "a.png", "--sequence", "west"), "west: no such sequence in the set; there are north, south"),
        (("set", "-o", "a.png", "--images", "nowhere"), "nowhere: no such folder"),
        (("set", "-o", "a.png", "--split", "a"), "split=a needs HPatches or RomePatches"),
    ],
)
def test_an_error_is_one_line(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["doap", "data", "mine", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    errors = capsys.readouterr().err
    assert (ended.value.code, errors.count("\n")) == (1, 1)
    assert message in errors
    assert not Path("a.png").exists()


def test_the_number_of_clusters_is_bounded(doap: Doap) -> None:
    status, _, errors = doap("data", "mine", "set", "-o", "a.png", "--clusters", "1000000")
    assert status == 2
    assert "Traceback" not in errors
    assert "4096" in errors
