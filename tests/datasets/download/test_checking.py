"""Counts and hashes of the content of official data sets."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from doap.datasets.download import checking
from doap.datasets.download.checking import Content, content_hash
from doap.errors import DoapError
from support.sets.small_official_sets import (
    STRIPS,
    make_hpatches,
    make_oxford,
    make_phototour,
    make_rome,
    make_sequences,
    make_tasks,
    save_noise,
)

Inspect = Callable[[Path], Content]
SETS: dict[str, tuple[Callable[[Path], Path], Inspect, dict[str, int]]] = {
    "phototour": (make_phototour, checking.inspect_phototour, {"patches": 300, "pairs": 40}),
    "hpatches": (
        make_hpatches,
        checking.inspect_hpatches,
        {"i_ sequences": 1, "v_ sequences": 2, "patches": 3 * 16 * 3},
    ),
    "sequences": (
        make_sequences,
        checking.inspect_hpatches_sequences,
        {"i_ sequences": 1, "v_ sequences": 1, "images": 12},
    ),
    "tasks": (
        make_tasks,
        checking.inspect_hpatches_tasks,
        {"splits": 2, "verification lists": 6, "retrieval lists": 4},
    ),
    "rome": (make_rome, checking.inspect_romepatches, {"patches": 40}),
    "oxford": (make_oxford, checking.inspect_oxford, {"sequences": 8, "images": 48}),
}


@pytest.mark.parametrize("name", SETS)
def test_small_sets_are_counted_and_hashed(tmp_path: Path, name: str) -> None:
    make, inspect, counts = SETS[name]
    content = inspect(make(tmp_path / "first" / "set"))
    assert content.counts == counts
    calls: list[tuple[int, int]] = []
    first = content_hash(content, lambda done, total: calls.append((done, total)))
    assert first == content_hash(inspect(make(tmp_path / "second" / "set")))
    assert calls[-1][0] == calls[-1][1] == sum(path.stat().st_size for path in content.files)


@pytest.mark.parametrize(("name", "hidden"), [("phototour", "._patches0000.bmp"), ("tasks", "._retr.csv")])
def test_hidden_files_are_no_part_of_a_set(tmp_path: Path, name: str, hidden: str) -> None:
    make, inspect, _ = SETS[name]
    folder = make(tmp_path / "set")
    content = inspect(folder)
    (folder / hidden).write_bytes(b"\0\5\x16\7")  # of macOS
    assert inspect(folder) == content


def test_the_hash_is_as_documented(tmp_path: Path) -> None:
    folder = make_hpatches(tmp_path)
    expected = hashlib.sha256()
    for sequence in ("i_one", "v_three", "v_two"):
        for strip in sorted(STRIPS):
            expected.update(b"195 65\n" + np.asarray(Image.open(folder / sequence / f"{strip}.png")).tobytes())
    assert content_hash(checking.inspect_hpatches(folder)) == expected.hexdigest()


def test_the_hash_depends_on_pixels_not_on_formats(tmp_path: Path) -> None:
    folder = make_oxford(tmp_path / "set")
    first = content_hash(checking.inspect_oxford(folder))
    image = folder / "graf" / "img1.ppm"
    Image.open(image).save(image.with_suffix(".png"))
    image.unlink()
    assert content_hash(checking.inspect_oxford(folder)) == first
    pixels = np.array(Image.open(image.with_suffix(".png")))
    pixels[0, 0] ^= 255
    Image.fromarray(pixels).save(image.with_suffix(".png"))
    assert content_hash(checking.inspect_oxford(folder)) != first


def test_both_versions_of_matlab_files_have_the_same_hash(tmp_path: Path) -> None:
    old, new = make_rome(tmp_path / "old"), make_rome(tmp_path / "new", hdf5=True)
    hashes = {content_hash(checking.inspect_romepatches(folder)) for folder in (old, new)}
    assert len(hashes) == 1


def test_the_real_oxford_sequences_are_complete(oxford: Path) -> None:
    content = checking.inspect_oxford(oxford)
    assert content.counts == {"sequences": 8, "images": 48}
    assert len(content_hash(content)) == 64


def short_strip(folder: Path) -> None:
    save_noise(folder / "v_two" / "t5.png", 65 * 2, 65)


def wide_strips(folder: Path) -> None:
    for strip in STRIPS:
        save_noise(folder / "v_two" / f"{strip}.png", 64, 64)


def cut(path: str, keep: float = 0.5) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        whole = (folder / path).read_bytes()
        (folder / path).write_bytes(whole[: int(len(whole) * keep)])

    return damage


def flip(path: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        content = bytearray((folder / path).read_bytes())
        content[-20] ^= 255
        (folder / path).write_bytes(content)

    return damage


def without(path: str) -> Callable[[Path], None]:
    return lambda folder: (folder / path).unlink()


def words(path: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / path).write_text("<html>not found</html>")

    return damage


DAMAGES: list[tuple[str, Callable[[Path], None], str]] = [
    ("phototour", without("info.txt"), "info.txt: No such file"),
    ("phototour", without("m50_100000_100000_0.txt"), "m50_100000_100000_0.txt: No such file"),
    ("phototour", without("patches0001.bmp"), "1 sheet (*.bmp), but the 300 patches of info.txt need 2"),
    ("phototour", cut("patches0001.bmp"), "patches0001.bmp: damaged, cannot be decoded"),
    ("phototour", lambda folder: save_noise(folder / "patches0001.bmp", 10, 10), "must be 1024x1024"),
    ("phototour", cut("info.txt", 0), "info.txt: is empty"),
    ("hpatches", without("v_two/t5.png"), "v_two/t5.png: missing"),
    ("hpatches", words("v_two/t5.png"), "v_two/t5.png: missing, or not a readable image"),
    ("hpatches", short_strip, "v_two: strips must be 65 wide"),
    ("hpatches", wide_strips, "v_two: strips must be 65 wide"),
    ("hpatches", cut("i_one/ref.png"), "i_one/ref.png: damaged, cannot be decoded"),
    ("sequences", without("v_two/6.ppm"), "v_two: no images named 6"),
    ("sequences", without("v_two/H_1_6"), "v_two/H_1_6: No such file"),
    ("tasks", without("splits.json"), "splits.json: No such file"),
    ("tasks", words("splits.json"), "splits.json: not valid JSON"),
    ("tasks", words("retr_queries_split-a.csv"), "not a list with the columns s,idx"),
    ("rome", without("patch_retrieval_Rome_test.mat"), "patch_retrieval_Rome_test.mat: missing"),
    (
        "rome",
        words("patch_retrieval_Rome_test.mat"),
        "patch_retrieval_Rome_test.mat: missing, or not a readable MATLAB file",
    ),
    ("rome", cut("patch_retrieval_Rome_test.mat", 0.9), "not a readable MATLAB file (truncated: "),
    ("rome", flip("patch_retrieval_Rome_test.mat"), "patch_retrieval_Rome_test.mat: damaged, cannot be decoded"),
    ("oxford", without("wall/img6.ppm"), "wall: no images named img6"),
    ("oxford", without("wall/H1to6p"), "wall/H1to6p: missing or empty"),
    ("oxford", cut("wall/H1to6p", 0), "wall/H1to6p: missing or empty"),
]


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGES, ids=[f"{d[0]}-{d[2][:30]}" for d in DAMAGES])
def test_damage_is_one_line_that_names_the_file(
    tmp_path: Path, name: str, damage: Callable[[Path], None], message: str
) -> None:
    make, inspect, _ = SETS[name]
    damage(make(tmp_path))
    with pytest.raises(DoapError) as error:
        content_hash(inspect(tmp_path))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert str(tmp_path) not in str(error.value)


def test_labels_are_not_taken_for_patches(tmp_path: Path) -> None:
    make_rome(tmp_path)
    labels = (tmp_path / "patch_retrieval_Rome_test_labels.mat").read_bytes()
    (tmp_path / "patch_retrieval_Rome_test.mat").write_bytes(labels)
    with pytest.raises(DoapError, match="does not consist of 51x51 patches"):
        checking.inspect_romepatches(tmp_path)


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    for _, inspect, _ in SETS.values():
        with pytest.raises(DoapError):
            inspect(tmp_path)
