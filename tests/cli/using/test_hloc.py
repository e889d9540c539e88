"""`doap hloc`, as a user runs it."""

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import skimage
from PIL import Image

from doap.folders import DescribeSettings, describe_folder, match_pairs
from doap.networks.card import read_card, write_card
from doap.networks.registry import find_weights
from folders.conftest import open_in_process
from support.command_line import Doap


@pytest.fixture
def features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Features of two crops of a photo, and their matches in m.h5."""
    monkeypatch.setattr("doap.folders.describing.open_engine", open_in_process)
    monkeypatch.setattr("doap.folders.matching.open_engine", open_in_process)
    monkeypatch.setattr("doap.folders.describing.start_loading", lambda *_: None)
    camera = skimage.data.camera()
    (tmp_path / "photos" / "sub").mkdir(parents=True)
    for name, crop in (("a.png", camera[:250, :250]), ("sub/b.png", camera[20:270, 30:280])):
        Image.fromarray(np.ascontiguousarray(crop)).save(tmp_path / "photos" / name)
    describe_folder(tmp_path / "photos", tmp_path / "f.h5", DescribeSettings("doap-demo-128", max_keypoints=100))
    match_pairs(tmp_path / "f.h5", [("a.png", "sub/b.png")], tmp_path / "m.h5")
    return tmp_path / "f.h5"


def test_files_are_written_and_kept(doap: Doap, features: Path) -> None:
    status, shown, errors = doap("hloc", features, "--matches", "m.h5", "-o", "out", "--half")
    assert (status, errors) == (0, "")
    name = Path("out/feats-doap-demo-128.h5")
    matches = Path("out/feats-doap-demo-128_matches-doap_pairs-m.h5")
    assert shown == f"{name}: features of 2 images\n{matches}: matches of 1 pair\n"
    assert Path("out/pairs-m.txt").read_text() == "a.png sub/b.png\n"
    with h5py.File(name) as file:
        assert file["sub/b.png"]["descriptors"].dtype == np.float16
    with h5py.File(matches) as file:
        assert (file["a.png/sub-b.png"]["matches0"][()] >= 0).sum() > 30
    assert doap("hloc", features, "--matches", "m.h5", "-o", "out", "--half")[1].count("up to date") == 2
    status, shown, _ = doap("hloc", features, "--matches", "m.h5", "-o", "out", "--half", "--verified")
    assert "feats-doap-demo-128_matches-verified_pairs-m.h5: matches of 1 pair\n" in shown
    assert sorted(path.name for path in Path("out").iterdir()) == [
        name.name, matches.name, matches.name.replace("matches-doap", "matches-verified"), "pairs-m.txt"
    ]  # fmt: skip


def test_the_list_of_pairs_grows_with_the_matches(doap: Doap, features: Path) -> None:
    words = ("hloc", features, "--matches", "m.h5", "-o", "out")
    assert doap(*words)[0] == 0
    match_pairs(features, [("a.png", "sub/b.png"), ("sub/b.png", "a.png")], Path("m.h5"))
    assert doap(*words, "--verified")[::2] == (0, "")
    assert Path("out/pairs-m.txt").read_text() == "a.png sub/b.png\nsub/b.png a.png\n"
    assert doap(*words)[::2] == (0, "")
    Path("out/pairs-m.txt").write_text("a.png a.png\n")  # by hand
    status, _, errors = doap(*words, "--verified")
    assert (status, errors) == (
        1,
        "doap: out/pairs-m.txt: exists with other pairs; choose another output, or --force to replace it\n",
    )
    assert Path("out/pairs-m.txt").read_text() == "a.png a.png\n"
    assert doap(*words, "--verified", "--force")[0] == 0


@pytest.mark.usefixtures("features")
def test_the_name_of_a_model_does_not_lead_out_of_the_folder(doap: Doap) -> None:
    weights = Path(shutil.copy(find_weights("doap-demo-128"), "shared.safetensors"))
    write_card(weights, read_card(find_weights("doap-demo-128")).model_copy(update={"name": "../../up"}))
    describe_folder(Path("photos"), Path("g.h5"), DescribeSettings(str(weights), max_keypoints=10))
    assert doap("hloc", "g.h5", "-o", "out")[:2] == (0, "out/feats-..-..-up.h5: features of 2 images\n")
    assert [path.name for path in Path("out").iterdir()] == ["feats-..-..-up.h5"]


def test_nothing_is_written_if_hloc_would_split_a_name(doap: Doap, features: Path) -> None:
    photos = features.parent / "photos"
    (photos / "a.png").rename(photos / "a b.png")
    describe_folder(photos, Path("spaced.h5"), DescribeSettings("doap-demo-128", max_keypoints=100))
    match_pairs(Path("spaced.h5"), [("a b.png", "sub/b.png")], Path("m2.h5"))
    status, _, errors = doap("hloc", "spaced.h5", "-o", "new", "--matches", "m2.h5")
    assert (status, errors.count("\n")) == (1, 1), errors
    assert "'a b.png': hloc splits names of images at spaces" in errors
    assert not Path("new").exists()


def test_errors_are_one_line_and_nothing_is_replaced(doap: Doap, features: Path) -> None:
    Path("out").mkdir()
    target = Path("out/feats-doap-demo-128.h5")
    target.write_bytes(b"precious")
    Path("file").write_text("")
    for arguments, message in (
        ((features, "-o", "out"), "was not written by doap hloc; choose another output, or --force"),
        ((features, "-o", "out", "--verified"), "name their file with --matches"),
        ((features, "-o", "new", "--matches", features), "no matches in it; write some with doap match"),
        (("photos", "-o", "new"), "no features in it; write some with doap describe"),
        (("m.h5", "-o", "new"), "no features in it"),
        (("none.h5", "-o", "new"), "no such file"),
        ((features, "-o", "file"), "file: cannot create this folder"),
    ):
        status, _, errors = doap("hloc", *arguments)
        assert (status, errors.count("\n")) == (1, 1), errors
        assert message in errors
    assert target.read_bytes() == b"precious"
    assert not Path("new").exists()
    assert doap("hloc", features, "-o", "out", "--force")[0] == 0
