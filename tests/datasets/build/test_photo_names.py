"""Photos whose names are not UTF-8, or hold control characters, from the build to the sets that are made from it."""

import os
from pathlib import Path

import pytest
from PIL import Image

from doap import PatchSet
from doap.datasets.build.building import build
from doap.datasets.build.image_pairs import make_pairs
from doap.datasets.build.settings import BuildSettings, PairSettings
from doap.datasets.build.splitting import write_split
from doap.datasets.official.image_sequences import read_sequence
from doap.datasets.official.opening import open_dataset
from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.image_pairs import find_pairs
from doap.types import Grey
from support.sample_photos import sample_photo
from support.sets.small_official_sets import make_hpatches

ODD_NAMES = (b"caf\xe9.png", b"deux\xe9/two\nlines.png")
ESCAPED = {r"caf\xe9.png", r"deux\xe9/two\x0alines.png"}


@pytest.fixture(scope="module")
def photos(photo: Grey, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder whose name is not UTF-8, with photos and a file that is none."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path_factory.mktemp("data")) + b"/\xe9t\xe9"))
    (folder / os.fsdecode(b"deux\xe9")).mkdir(parents=True)
    for name, image in zip(ODD_NAMES, (photo[:200, 100:300], sample_photo("coffee")[:200, :200]), strict=True):
        Image.fromarray(image).save(folder / os.fsdecode(name))
    (folder / os.fsdecode(b"text\xe9.jpg")).write_text("not a picture")
    return folder


@pytest.mark.parametrize("pixels", [True, False])
def test_photos_of_any_name_make_a_set(photos: Path, tmp_path: Path, pixels: bool) -> None:
    target = tmp_path / os.fsdecode(b"set\xe9")
    result = build([photos], target, BuildSettings(points=30), pixels, workers=1)
    data = PatchSet.open(target) if pixels else FrameSet.open(target)
    assert set(data.photo_names) == {rf"\xe9t\xe9/{name}" for name in ESCAPED}
    assert set(data.sequence_names) == set(data.photo_names)
    assert (target / "scenes.csv").read_text(encoding="utf-8").count(r"\xe9t\xe9/") == 2
    assert r"text\xe9.jpg" in (target / "summary.html").read_text(encoding="utf-8")
    assert len(result.skipped) == 1
    assert set(write_split(data, tmp_path / "split", 0.5, 0)) == {"train", "val"}
    assert r"\xe9t\xe9/" in (tmp_path / "split" / "split.csv").read_text(encoding="utf-8")
    if isinstance(data, FrameSet):
        assert len(make_pairs(data, tmp_path / "pairs", PairSettings(copies=1))) == 2
        assert len(find_pairs(tmp_path / "pairs")) == 2


def test_official_folders_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / os.fsdecode(b"cache\xe9")))
    folder = make_hpatches(tmp_path / "hpatches", patches=2)
    odd = tmp_path / os.fsdecode(b"hpatches\xe9")
    folder.rename(odd)
    (odd / "i_one").rename(odd / os.fsdecode(b"i_on\xe9"))
    assert r"i_on\xe9" in open_dataset(odd).sequence_names


def test_image_sequences_may_have_any_name(photo: Grey, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"wal\xe9")
    folder.mkdir()
    for number in range(1, 7):
        Image.fromarray(photo[:50, :50]).save(folder / f"img{number}.png")
        (folder / f"H1to{number}p").write_text("1 0 0 0 1 0 0 0 1")
    assert read_sequence(folder).name == r"wal\xe9"
    assert {pair.sequence for pair in find_pairs(tmp_path)} == {r"wal\xe9"}
