import csv
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from doap import DoapError
from doap.datasets.build.image_pairs import make_pairs, make_static_copies
from doap.datasets.build.settings import PairSettings
from doap.datasets.official.image_sequences import find_sequences, read_homography
from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.image_pairs import find_pairs
from doap.evaluation.image_pairs.reading import PairReader
from doap.images.reading import read_grey
from support.sets.small_frame_set import (
    MOTION,
    PLANE,
    SHAPE,
    FrameSetMaker,
    add_static,
    crop_photo,
    sample_points,
    small_frame_set,
)


def unwarp(copy: np.ndarray, homography: np.ndarray) -> np.ndarray:
    """Undo the homography of a copy; nan outside it."""
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    inside = cv2.warpPerspective(np.ones(copy.shape, np.float32), homography, SHAPE[::-1], flags=flags)
    return np.where(
        inside > 0.99, cv2.warpPerspective(copy.astype(np.float32), homography, SHAPE[::-1], flags=flags), np.nan
    )


def correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Return the correlation of two images where both are finite."""
    valid = np.isfinite(first) & np.isfinite(second)
    assert valid.mean() > 0.3
    return float(np.corrcoef(first[valid], second[valid])[0, 1])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("made") / "pairs"
    calls: list[tuple[int, int]] = []
    make_pairs(small_frame_set(), target, PairSettings(singles=4), lambda *done: calls.append(done))
    assert calls == [(number, 10) for number in range(1, 11)]
    return target


def test_the_table_is_what_eval_pairs_reads(made: Path) -> None:
    pairs = find_pairs(made)
    scenes = [files.sequence for files in pairs]
    kinds = {"i": ("static",), "s": ("plane", "scene")}
    named = {f"{kind}_set-{what}{number}" for kind in kinds for what in kinds[kind] for number in range(2)}
    assert {scene for scene in scenes if scene[0] != "v"} == named
    counts = {kind: sum(scene[0] == kind for scene in scenes) for kind in "ivs"}
    assert counts == {"i": 4, "v": 8, "s": 8}
    assert len({scene for scene in scenes if scene[0] == "v"}) == 4
    reader = PairReader("dog", 50)
    for files in pairs:
        pair = reader.open(files)
        assert (pair.ground_truth.geometry == "fundamental") == ("scene" in files.sequence)


def test_static_views_have_their_true_motion(made: Path) -> None:
    for number in range(2):
        folder = made / f"i_set-static{number}"
        np.testing.assert_array_equal(read_grey(folder / "1.png"), crop_photo(number))
        homography = read_homography(folder / "H_1_2")
        np.testing.assert_allclose(homography / homography[2, 2], MOTION, atol=1e-3)
        for copy in (2, 3):  # unchanged, and warped
            unwarped = unwarp(read_grey(folder / f"{copy}.png"), read_homography(folder / f"H_1_{copy}"))
            assert correlation(unwarped, crop_photo(number).astype(float)) > 0.97
            assert np.nanmean(unwarped) < 0.5 * crop_photo(number).mean()  # the light of the second photo


def test_single_photos_are_matched_with_warped_copies(made: Path) -> None:
    for folder in made.glob("v_*"):
        photo = read_grey(folder / "1.png").astype(float)
        for copy in (2, 3):
            homography = read_homography(folder / f"H_1_{copy}")
            assert np.abs(homography / homography[2, 2] - np.eye(3)).max() > 0.05
            unwarped = unwarp(read_grey(folder / f"{copy}.png"), homography)
            best = correlation(unwarped, photo)
            assert best > 0.7  # the light differs
            for axis, pixels in ((0, 2), (0, -2), (1, 2), (1, -2)):
                assert correlation(np.roll(unwarped, pixels, axis), photo) < best


def test_planes_have_their_homography_and_scenes_their_points(made: Path) -> None:
    data = small_frame_set()
    with (made / "pairs.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["scene"].startswith("s_")]
    for row in rows:
        photos = [int(Path(row[column]).stem) for column in ("first", "second")]
        for column, photo in zip(("first", "second"), photos, strict=True):
            np.testing.assert_array_equal(read_grey(made / row[column]), data.read_photo(photo))
            assert data.photo_names[photo].startswith(f"set/{row['scene'].removeprefix('s_set-')}/")
        if "plane" in row["scene"]:
            homography = read_homography(made / row["truth"])
            expected = np.linalg.matrix_power(PLANE, photos[1] - photos[0])
            np.testing.assert_allclose(homography / homography[2, 2], expected / expected[2, 2], atol=1e-2)
        else:
            assert len((made / row["truth"]).read_text().splitlines()) == 81


def test_five_copies_are_sequences_in_the_layout_of_hpatches(tmp_path: Path) -> None:
    make_pairs(small_frame_set(), tmp_path / "pairs", PairSettings(copies=5, singles=1, per_scene=1))
    sequences = find_sequences(tmp_path / "pairs")
    assert [sequence.name for sequence in sequences][:2] == ["i_set-static0", "i_set-static1"]
    assert [sequence.name[:2] for sequence in sequences] == ["i_", "i_", "v_"]
    assert all(len(sequence.images) == 6 for sequence in sequences)


def test_the_seed_fixes_everything(made: Path, tmp_path: Path) -> None:
    def content(folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    make_pairs(small_frame_set(), tmp_path / "again", PairSettings(singles=4))
    make_pairs(small_frame_set(), tmp_path / "other", PairSettings(singles=4, seed=1))
    assert content(tmp_path / "again") == content(made)
    other = content(tmp_path / "other")
    assert {name for name in other if name.startswith("v_")} != {n for n in content(made) if n.startswith("v_")}
    assert other["i_set-static0/3.png"] != content(made)["i_set-static0/3.png"]


def test_other_photos_come_first_and_then_warps_of_them() -> None:
    photos = [crop_photo(0), (crop_photo(0) // 2), (crop_photo(0) // 4)]
    motions = [np.eye(3), MOTION, np.linalg.inv(MOTION)]
    random = np.random.default_rng(0)
    copies = list(make_static_copies(photos, motions, 5, random))
    assert len(copies) == 5
    plain = [next(k for k in (1, 2) if np.array_equal(copy, photos[k])) for copy, _ in copies[:2]]
    assert sorted(plain) == [1, 2]
    for number, (_, homography) in zip(plain, copies[:2], strict=True):
        np.testing.assert_array_equal(homography, motions[number])
    for copy, _ in copies[2:]:
        assert copy.max() <= photos[1].max() + 1  # never the first, whose light it would share
    assert len(list(make_static_copies(photos, motions, 1, random))) == 1


def test_photos_that_are_not_registered_make_no_pair(tmp_path: Path) -> None:
    maker = FrameSetMaker()
    points = sample_points(30, 0)
    wrong = points + np.random.default_rng(0).normal(0, 2, points.shape)
    maker.add("view", "static", {"view/a.png": crop_photo(0), "view/b.png": crop_photo(1)}, [points, wrong])
    add_static(maker, "vi/ew", 2)
    add_static(maker, "vi-ew", 3)
    rows = make_pairs(maker.frame_set(), tmp_path / "pairs", PairSettings())
    assert {row.scene for row in rows} == {"i_vi-ew", "i_vi-ew_"}
    assert len(rows) == 4
    assert not (tmp_path / "pairs" / "i_view").exists()


def test_a_set_that_gives_no_pair_leaves_nothing(tmp_path: Path) -> None:
    maker = FrameSetMaker()
    points = sample_points(30, 0)  # in both photos, but too few
    maker.add("a", "tracks", {"a/0.png": crop_photo(0), "a/1.png": crop_photo(1)}, [points, points])
    with pytest.raises(DoapError, match=r"no image pair can be made .* no photo is single; add photos"):
        make_pairs(maker.frame_set(), tmp_path / "pairs", PairSettings())
    single = FrameSetMaker()
    single.add("b", "views", {"b/0.png": crop_photo(0)}, [points])
    with pytest.raises(DoapError, match=r"no image pair can be made .* no single photo is used, by singles=0"):
        make_pairs(single.frame_set(), tmp_path / "pairs", PairSettings(singles=0))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").mkdir()
    with pytest.raises(DoapError, match="there: exists already"):
        make_pairs(small_frame_set(), tmp_path / "there", PairSettings())


def test_a_damaged_photo_is_named(tmp_path: Path) -> None:
    data = small_frame_set()
    damaged = FrameSet(
        [np.zeros(9, np.uint8)] * len(data.encoded_photos), data.photo_names, data.photos, data.frames, data.groups,
        data.sequences, data.sources, data.sequence_names,
    )  # fmt: skip
    with pytest.raises(DoapError, match=r"a\.png: not an image .*; build the set again"):
        make_pairs(damaged, tmp_path / "pairs", PairSettings())
    assert list(tmp_path.iterdir()) == []


def test_images_are_grey_png(made: Path) -> None:
    with Image.open(next(made.glob("s_*/*.png"))) as image:
        assert (image.format, image.mode) == ("PNG", "L")
