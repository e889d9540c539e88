"""Sets made from a frame set of known content: every patch, group and pair is compared with the frame set."""

import json
import os
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from doap import DoapError, PatchSet
from doap.datasets.build import look_alike
from doap.datasets.build.look_alike import PHOTOTOUR_SETS, RECORD, make_look_alike, read_record
from doap.datasets.build.settings import LookAlikeSettings
from doap.datasets.official.hpatches_tasks import find_split
from doap.datasets.official.opening import open_dataset
from doap.datasets.official.phototour import PAIRS, SIZE, read_pairs
from doap.datasets.sets.frame_set import SOURCES, FrameSet
from doap.datasets.sets.scenes import find_scenes
from doap.evaluation.harness.cache import DescriptorCache
from doap.evaluation.harness.methods import open_methods
from doap.evaluation.hpatches.benchmark import HPatches
from doap.evaluation.phototour.benchmark import Phototour
from doap.evaluation.romepatches.benchmark import RomePatches
from doap.images.extraction import Pyramid, extract_patches
from support.sets.look_alike_frames import look_alike_frames

SETTINGS = LookAlikeSettings(patches=120, pairs=60, groups=20, points=6, jitter=False, seed=3)
SETS = (*PHOTOTOUR_SETS, "romepatches", "hpatches")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "frames"
    look_alike_frames().save(path)
    return path


@pytest.fixture(scope="module")
def made(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "sets"
    make_look_alike(source, folder, SETTINGS)
    return folder


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))


@cache
def pyramid(photo: int) -> Pyramid:
    return Pyramid(look_alike_frames().read_photo(photo))


def photos_of(patches: np.ndarray, group: int, size: int) -> list[int]:
    """Return the photo of each patch of a group, found by comparing it with all frames of the group; -1 for none."""
    data = look_alike_frames()
    items = np.flatnonzero(data.groups == group)
    cut = {
        photo: extract_patches(pyramid(photo), data.frames[[item]], size, data.extent)
        for item, photo in zip(items, data.photos[items].tolist(), strict=True)
    }
    return [next((p for p, expected in cut.items() if (expected[0] == patch).all()), -1) for patch in patches]


def scenes_of(groups: np.ndarray) -> set[str]:
    data = look_alike_frames()
    sequences = {int(data.sequences[data.groups == group][0]) for group in np.unique(groups)}
    return {scene.name for scene in find_scenes(data) if sequences & set(scene.sequences)}


@pytest.mark.parametrize("name", PHOTOTOUR_SETS)
def test_phototour_patches_show_their_point_in_different_photos(made: Path, name: str) -> None:
    patches = open_dataset(made / name)
    assert 2 * len(np.unique(patches.groups)) < len(patches) <= SETTINGS.patches
    for group in np.unique(patches.groups):
        photos = photos_of(patches.take(np.flatnonzero(patches.groups == group)), group, SIZE)
        assert -1 not in photos
        assert 2 <= len(set(photos)) == len(photos) <= 5


@pytest.mark.parametrize("name", PHOTOTOUR_SETS)
def test_phototour_pairs_are_true(made: Path, name: str) -> None:
    groups = open_dataset(made / name).groups
    first, second, same = read_pairs(made / name / PAIRS, len(groups))
    assert same.sum() == (~same).sum() == len(same) / 2 > 10
    assert len(same) <= 2 * SETTINGS.pairs
    np.testing.assert_array_equal(groups[first] == groups[second], same)
    assert len({(min(pair), max(pair)) for pair in zip(first.tolist(), second.tolist(), strict=True)}) == len(first)
    overlaps = {frozenset(pair) for pair in look_alike_frames().overlaps.tolist()}
    negatives = zip(groups[first[~same]].tolist(), groups[second[~same]].tolist(), strict=True)
    assert not overlaps & {frozenset(pair) for pair in negatives}


def test_phototour_sets_share_no_scene(made: Path) -> None:
    scenes = [scenes_of(open_dataset(made / name).groups) for name in PHOTOTOUR_SETS]
    assert all(scenes)
    assert len(set.union(*scenes)) == sum(map(len, scenes)) == 4
    assert [sorted(names) for names in scenes] == [read_record(made)["sets"][name]["scenes"] for name in PHOTOTOUR_SETS]


def test_romepatches_groups_are_ten_patches_of_a_point(made: Path) -> None:
    patches = open_dataset(made / "romepatches")
    record = read_record(made)["sets"]["romepatches"]
    scenes = []
    for number, half in enumerate(patches.sequence_names):
        counts = record[half]
        in_half = np.flatnonzero(patches.sequences == number)
        groups, sizes = np.unique(patches.groups[in_half], return_counts=True)
        assert len(groups) == counts["groups"] == SETTINGS.groups
        assert set(sizes) == {10}
        is_query = patches.labels["query"][in_half] == 1
        assert len(np.unique(patches.groups[in_half][is_query])) == is_query.sum() == len(groups)
        scenes.append(set(counts["scenes"]))
    assert not scenes[0] & scenes[1]


def test_romepatches_uses_ten_photos_before_jittered_views(made: Path) -> None:
    """Each half has one scene of twelve photos with 40 points, of which some leave the photo; the others have three."""
    from scipy.io import loadmat

    counts = read_record(made)["sets"]["romepatches"]
    for half in ("train", "test"):
        labels = loadmat(made / "romepatches" / f"patch_retrieval_Rome_{half}_labels.mat")
        pixels = loadmat(made / "romepatches" / f"patch_retrieval_Rome_{half}.mat")["patches"]
        points = np.concatenate([labels["labels_gt"][0], labels["labels"][0]]).astype(int)
        assert (pixels == pixels[:, :1]).all()
        jittered = filled = 0
        for point in np.unique(points):
            photos = photos_of(pixels[points == point][:, 0], point, 51)
            real = [photo for photo in photos if photo >= 0]
            assert len(set(real)) == len(real) >= 2
            jittered += photos.count(-1)
            filled += -1 in photos
        assert counts[half]["jittered patches"] == jittered
        assert counts[half]["groups filled with jittered views"] == filled < SETTINGS.groups


def test_hpatches_has_ten_sequences_of_different_scenes(made: Path) -> None:
    split = find_split(made / "hpatches", "a")
    counts = read_record(made)["sets"]["hpatches"]
    for part, per_kind in ((split.test, 2), (split.train, 3)):
        assert [sum(name.startswith(kind) for name in part) for kind in ("i_", "v_")] == [per_kind, per_kind]
    names = {*split.test, *split.train}
    assert {path.name for path in (made / "hpatches").iterdir() if path.is_dir()} == names == set(counts["sequences"])
    assert len({sequence["scene"] for sequence in counts["sequences"].values()}) == 10
    patches = open_dataset(made / "hpatches")
    assert len(patches) == 16 * counts["points"]
    assert counts["sequences"]["i_set-static"] == {"scene": "set/static", "points": 6, "photos": 2}


@pytest.mark.parametrize("kind", ["i", "v"])
def test_hpatches_strips_show_the_same_points(made: Path, kind: str) -> None:
    """Easy patches resemble the reference patch of their row more than those of other rows."""
    patches = open_dataset(made / "hpatches")
    correct = []
    for number, name in enumerate(patches.sequence_names):
        if name[0] == kind:
            in_sequence = np.flatnonzero((patches.sequences == number) & (patches.labels["noise"] <= 1))
            strips = patches.take(in_sequence).reshape(6, -1, 65 * 65).astype(float)
            strips -= strips.mean(2, keepdims=True)
            strips /= np.linalg.norm(strips, axis=2, keepdims=True) + 1e-9
            best = np.einsum("ipk,qk->ipq", strips[1:], strips[0]).argmax(2)
            correct.append((best == np.arange(best.shape[1])).mean())
    assert np.mean(correct) > 0.8


def test_all_protocols_run_on_the_sets(made: Path, tmp_path: Path) -> None:
    methods = open_methods(["rootsift"], cache=DescriptorCache(tmp_path / "descriptors"))
    pairs = Phototour(made).evaluate(methods)
    assert [score["test"] for score in pairs.scores] == ["a", "b", "c"]
    assert all(float(str(score["auc"])) > 80 for score in pairs.scores)
    (table,) = Phototour.tables(pairs)
    assert [row.cells[0] for row in table.rows] == ["rootsift"]  # published figures are of other data
    assert "-" not in table.rows[0].cells[2:]
    retrieval = RomePatches(made / "romepatches").evaluate(methods)
    assert all(float(str(score["map"])) > 50 for score in retrieval.scores)
    tasks = HPatches(made / "hpatches", split="a").evaluate(methods)
    assert tasks.settings["tasks"] == ["verification", "matching", "retrieval"]


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    # MATLAB files begin with the time of writing.
    return {path.relative_to(folder).as_posix(): path.read_bytes()[116 * (path.suffix == ".mat") :] for path in files}


def test_an_interrupted_run_continues_with_the_same_result(made: Path, source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sets"

    def interrupt(step: str, *_: object) -> None:
        if step == "making romepatches":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_look_alike(source, folder, SETTINGS, interrupt)
    assert {path.name for path in folder.iterdir() if path.is_dir()} == set(PHOTOTOUR_SETS)
    with pytest.raises(DoapError, match="no complete sets here"):
        read_record(folder)
    os.utime(folder / "phototour-a" / "info.txt", (1, 1))
    (folder / ".romepatches-killed").mkdir()  # as a killed run leaves it
    steps: set[str] = set()
    make_look_alike(source, folder, SETTINGS, lambda step, *_: steps.add(step))
    assert steps == {"making romepatches", "making hpatches"}
    assert (folder / "phototour-a" / "info.txt").stat().st_mtime == 1
    assert contents(folder) == contents(made)
    make_look_alike(source, folder, SETTINGS, lambda step, *_: pytest.fail(f"{step} again"))


def test_the_source_may_move_but_not_change(made: Path, source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "frames")
    make_look_alike(tmp_path / "frames", made, SETTINGS)
    data = look_alike_frames()
    data.select(data.sequences > 0).save(tmp_path / "other")
    with pytest.raises(DoapError, match=r"was made with other source, .*; use the same or choose another name"):
        make_look_alike(tmp_path / "other", made, SETTINGS)


def test_other_settings_and_other_content_are_refused(made: Path, source: Path, tmp_path: Path) -> None:
    with pytest.raises(DoapError, match=r'was made with other settings, {"patches": 120, .*; use the same') as error:
        make_look_alike(source, made, LookAlikeSettings.quick())
    assert "\n" not in str(error.value)
    (tmp_path / "mine.txt").touch()
    with pytest.raises(DoapError, match="exists already; remove it or choose another name"):
        make_look_alike(source, tmp_path, SETTINGS)


def test_sources_that_cannot_be_used(tmp_path: Path) -> None:
    data = look_alike_frames()
    data.select(data.sources != SOURCES.index("tracks")).save(tmp_path / "untracked")
    with pytest.raises(DoapError, match="untracked: 0 scenes with tracked points, but 3 sets that share no scene need"):
        make_look_alike(tmp_path / "untracked", tmp_path / "a", SETTINGS)
    data.select(data.sources == SOURCES.index("tracks")).save(tmp_path / "few")
    with pytest.raises(DoapError, match="few: 4 scenes, but 10 sequences that share no scene need as many; add photos"):
        make_look_alike(tmp_path / "few", tmp_path / "b", SETTINGS)
    PatchSet([np.zeros((4, 8, 8), np.uint8)], [0, 0, 1, 1]).save(tmp_path / "patches")
    with pytest.raises(DoapError, match="a patch set has no photos; give a frame set"):
        make_look_alike(tmp_path / "patches", tmp_path / "c", SETTINGS)
    with pytest.raises(DoapError, match="no such folder; give a frame set, or a folder of photos"):
        make_look_alike(tmp_path / "absent", tmp_path / "d", SETTINGS)
    assert not any((tmp_path / name).exists() for name in "abcd")


def test_a_source_that_cannot_be_used_does_not_block_the_folder(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos, folder = tmp_path / "photos", tmp_path / "sets"
    photos.mkdir()
    (photos / "a.png").touch()
    data = look_alike_frames()
    few = data.select(data.sources == SOURCES.index("tracks"))
    monkeypatch.setattr(look_alike, "build", lambda _photos, target, *_, **__: few.save(target))
    with pytest.raises(DoapError, match="photos: 4 scenes, but 10 sequences"):
        make_look_alike(photos, folder, SETTINGS)
    assert not folder.exists()

    def interrupt(step: str, *_: object) -> None:
        if step == "making phototour-b":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_look_alike(source, folder, SETTINGS, interrupt)
    monkeypatch.setattr(look_alike, "choose_sequence_scenes", fail)
    with pytest.raises(DoapError, match="too few"):
        make_look_alike(source, folder, SETTINGS)
    assert (folder / "phototour-a" / "info.txt").exists()


def fail(*_: object) -> None:
    raise DoapError("too few")


def test_photos_are_built_first(made: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "a.png").touch()
    built: list[Path] = []

    def build(paths: list[Path], target: Path, *_: object, pixels: bool, **__: object) -> None:
        assert paths == [photos]
        assert not pixels
        built.append(target)
        FrameSet.open(source).save(target)

    monkeypatch.setattr(look_alike, "build", build)
    monkeypatch.setattr(look_alike, "write_hpatches_part", lambda *_: {})  # for speed
    for _ in range(2):
        make_look_alike(photos, tmp_path / "sets", SETTINGS)
    assert built == [tmp_path / "sets" / "frames"]
    expected = read_record(made)["sets"]
    assert read_record(tmp_path / "sets")["sets"] == {**expected, "hpatches": {}}


def test_jitter_changes_the_patches_of_phototour_only(
    made: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_alike, "write_hpatches_part", lambda *_: {})  # for speed
    make_look_alike(source, tmp_path / "sets", replace(SETTINGS, jitter=True))
    for name in PHOTOTOUR_SETS:
        plain, jittered = open_dataset(made / name), open_dataset(tmp_path / "sets" / name)
        np.testing.assert_array_equal(plain.groups, jittered.groups)
        pixels = [data.take(np.arange(len(data))).reshape(len(data), -1) for data in (plain, jittered)]
        assert not (pixels[0] == pixels[1]).all(axis=1).any()
        assert np.median([np.corrcoef(*pair)[0, 1] for pair in zip(*pixels, strict=True)]) > 0.5
    expected, rome = (open_dataset(folder / "romepatches") for folder in (made, tmp_path / "sets"))
    every = np.arange(len(expected))
    np.testing.assert_array_equal(rome.take(every), expected.take(every))


def test_a_damaged_record_is_one_line(source: Path, tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text("{")
    with pytest.raises(DoapError, match=r"look-alike\.json: damaged"):
        make_look_alike(source, tmp_path, SETTINGS)


def test_settings_are_recorded(made: Path) -> None:
    record = json.loads((made / RECORD).read_text())
    assert record["settings"] == {"patches": 120, "pairs": 60, "groups": 20, "points": 6, "jitter": False, "seed": 3}
    assert list(record["sets"]) == list(SETS)
