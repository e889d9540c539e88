import csv
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from doap import DoapError
from doap.datasets.build.image_pairs import Wanted, make_pairs, make_static_copies
from doap.datasets.official.image_sequences import find_sequences, read_homography
from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.image_pairs import find_pairs
from doap.evaluation.image_pairs.reading import PairReader
from doap.images.reading import read_grey
from support.small_frame_set import MOTION, PLANE, SHAPE, Maker, add_still, anywhere, look, small_frame_set


def back(copy: np.ndarray, homography: np.ndarray) -> np.ndarray:
    """A copy as it would be without the homography, nan outside it."""
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    seen = cv2.warpPerspective(np.ones(copy.shape, np.float32), homography, SHAPE[::-1], flags=flags)
    return np.where(
        seen > 0.99, cv2.warpPerspective(copy.astype(np.float32), homography, SHAPE[::-1], flags=flags), np.nan
    )


def alike(first: np.ndarray, second: np.ndarray) -> float:
    """The correlation of two pictures where both are known."""
    known = np.isfinite(first) & np.isfinite(second)
    assert known.mean() > 0.3
    return float(np.corrcoef(first[known], second[known])[0, 1])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("made") / "pairs"
    told: list[tuple[int, int]] = []
    make_pairs(small_frame_set(), target, Wanted(singles=4), lambda *done: told.append(done))
    assert told == [(number, 10) for number in range(1, 11)]
    return target


def test_the_table_is_what_eval_pairs_reads(made: Path) -> None:
    found = find_pairs(made)
    scenes = [files.sequence for files in found]
    kinds = {"i": ("still",), "s": ("plane", "scene")}
    named = {f"{kind}_set-{what}{number}" for kind in kinds for what in kinds[kind] for number in range(2)}
    assert {scene for scene in scenes if scene[0] != "v"} == named
    counts = {kind: sum(scene[0] == kind for scene in scenes) for kind in "ivs"}
    assert counts == {"i": 4, "v": 8, "s": 8}
    assert len({scene for scene in scenes if scene[0] == "v"}) == 4
    reader = PairReader("dog", 50)
    for files in found:
        pair = reader.open(files)
        assert (pair.truth.geometry == "fundamental") == ("scene" in files.sequence)


def test_still_views_are_matched_under_their_true_motion(made: Path) -> None:
    for number in range(2):
        folder = made / f"i_set-still{number}"
        np.testing.assert_array_equal(read_grey(folder / "1.png"), look(number))
        homography = read_homography(folder / "H_1_2")
        np.testing.assert_allclose(homography / homography[2, 2], MOTION, atol=1e-3)
        for copy in (2, 3):  # as it is, and warped
            found = back(read_grey(folder / f"{copy}.png"), read_homography(folder / f"H_1_{copy}"))
            assert alike(found, look(number).astype(float)) > 0.97
            assert np.nanmean(found) < 0.5 * look(number).mean()  # the second picture's light


def test_single_photos_are_matched_with_warped_copies(made: Path) -> None:
    for folder in made.glob("v_*"):
        photo = read_grey(folder / "1.png").astype(float)
        for copy in (2, 3):
            homography = read_homography(folder / f"H_1_{copy}")
            assert np.abs(homography / homography[2, 2] - np.eye(3)).max() > 0.05
            unwarped = back(read_grey(folder / f"{copy}.png"), homography)
            best = alike(unwarped, photo)
            assert best > 0.7  # the light is another
            for axis, pixels in ((0, 2), (0, -2), (1, 2), (1, -2)):
                assert alike(np.roll(unwarped, pixels, axis), photo) < best


def test_planes_have_their_homography_and_scenes_their_points(made: Path) -> None:
    data = small_frame_set()
    with (made / "pairs.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["scene"].startswith("s_")]
    for row in rows:
        photos = [int(Path(row[column]).stem) for column in ("first", "second")]
        for column, photo in zip(("first", "second"), photos, strict=True):
            np.testing.assert_array_equal(read_grey(made / row[column]), data.picture(photo))
            assert data.photo_names[photo].startswith(f"set/{row['scene'].removeprefix('s_set-')}/")
        if "plane" in row["scene"]:
            homography = read_homography(made / row["truth"])
            expected = np.linalg.matrix_power(PLANE, photos[1] - photos[0])
            np.testing.assert_allclose(homography / homography[2, 2], expected / expected[2, 2], atol=1e-2)
        else:
            assert len((made / row["truth"]).read_text().splitlines()) == 81


def test_five_copies_are_sequences_in_the_layout_of_hpatches(tmp_path: Path) -> None:
    make_pairs(small_frame_set(), tmp_path / "pairs", Wanted(copies=5, singles=1, per_scene=1))
    found = find_sequences(tmp_path / "pairs")
    assert [sequence.name for sequence in found][:2] == ["i_set-still0", "i_set-still1"]
    assert [sequence.name[:2] for sequence in found] == ["i_", "i_", "v_"]
    assert all(len(sequence.images) == 6 for sequence in found)


def test_the_seed_fixes_everything(made: Path, tmp_path: Path) -> None:
    def content(folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    make_pairs(small_frame_set(), tmp_path / "again", Wanted(singles=4))
    make_pairs(small_frame_set(), tmp_path / "other", Wanted(singles=4, seed=1))
    assert content(tmp_path / "again") == content(made)
    other = content(tmp_path / "other")
    assert {name for name in other if name.startswith("v_")} != {n for n in content(made) if n.startswith("v_")}
    assert other["i_set-still0/3.png"] != content(made)["i_set-still0/3.png"]


def test_other_pictures_come_first_and_then_warps_of_them() -> None:
    pictures = [look(0), (look(0) // 2), (look(0) // 4)]
    motions = [np.eye(3), MOTION, np.linalg.inv(MOTION)]
    random = np.random.default_rng(0)
    copies = list(make_static_copies(pictures, motions, 5, random))
    assert len(copies) == 5
    plain = [next(k for k in (1, 2) if np.array_equal(copy, pictures[k])) for copy, _ in copies[:2]]
    assert sorted(plain) == [1, 2]
    for number, (_, homography) in zip(plain, copies[:2], strict=True):
        np.testing.assert_array_equal(homography, motions[number])
    for copy, _ in copies[2:]:
        assert copy.max() <= pictures[1].max() + 1  # never the first, whose light it would share
    assert len(list(make_static_copies(pictures, motions, 1, random))) == 1


def test_pictures_that_did_not_register_are_no_pair(tmp_path: Path) -> None:
    maker = Maker()
    points = anywhere(30, 0)
    wrong = points + np.random.default_rng(0).normal(0, 2, points.shape)
    maker.add("view", "static", {"view/a.png": look(0), "view/b.png": look(1)}, [points, wrong])
    add_still(maker, "vi/ew", 2)
    add_still(maker, "vi-ew", 3)
    rows = make_pairs(maker.made(), tmp_path / "pairs", Wanted())
    assert {row.scene for row in rows} == {"i_vi-ew", "i_vi-ew_"}
    assert len(rows) == 4
    assert not (tmp_path / "pairs" / "i_view").exists()


def test_a_set_that_gives_no_pair_leaves_nothing(tmp_path: Path) -> None:
    maker = Maker()
    points = anywhere(30, 0)  # shared by both, but too few
    maker.add("a", "tracks", {"a/0.png": look(0), "a/1.png": look(1)}, [points, points])
    with pytest.raises(DoapError, match="no pair can be made"):
        make_pairs(maker.made(), tmp_path / "pairs", Wanted())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").mkdir()
    with pytest.raises(DoapError, match="there: exists already"):
        make_pairs(small_frame_set(), tmp_path / "there", Wanted())


def test_a_damaged_photo_is_named(tmp_path: Path) -> None:
    data = small_frame_set()
    damaged = FrameSet(
        [np.zeros(9, np.uint8)] * len(data.pictures), data.photo_names, data.photos, data.frames, data.groups,
        data.sequences, data.sources, data.sequence_names,
    )  # fmt: skip
    with pytest.raises(DoapError, match="cannot be decoded"):
        make_pairs(damaged, tmp_path / "pairs", Wanted())
    assert list(tmp_path.iterdir()) == []


def test_pictures_are_grey_png(made: Path) -> None:
    with Image.open(next(made.glob("s_*/*.png"))) as picture:
        assert (picture.format, picture.mode) == ("PNG", "L")
