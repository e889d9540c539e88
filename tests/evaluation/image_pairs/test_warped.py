import itertools
import weakref
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image

from doap import DoapError
from doap.choices import DEFAULT_DETECTOR
from doap.evaluation.harness.cache import DescriptorCache
from doap.evaluation.harness.methods import open_methods
from doap.evaluation.harness.result import Score, read_result
from doap.evaluation.image_pairs import warped as warped_module
from doap.evaluation.image_pairs.scoring import ImagePair, View, score_all
from doap.evaluation.image_pairs.warped import (
    Warped,
    correspondence_matrix,
    make_pairs,
    mean_scores,
    score_warped,
)
from doap.evaluation.metrics import significance
from doap.features import FrameDescriber
from doap.geometry.ellipses import scales
from doap.geometry.ground_truth import from_homography
from doap.geometry.homographies import invert_homography
from doap.images.detectors import DETECTORS
from doap.images.extraction import Pyramid
from doap.images.frames import detect_dog, transform_frames
from doap.images.reading import read_grey
from doap.images.warping import warp
from doap.networks.baselines.sift import Sift
from doap.types import Descriptors, Frames, Grey, Kind


class Oracle:
    """Describes a frame by its position and scale in the photo, using the ground truth."""

    name: ClassVar[str] = "oracle"
    kind: ClassVar[Kind] = "real"

    def __init__(self, pair: ImagePair) -> None:
        self.pair = pair

    def describe_frames(self, image: Grey, frames: Frames) -> Descriptors:
        if image is self.pair.second.image:
            frames = transform_frames(frames, invert_homography(self.pair.ground_truth.matrix))
        return np.column_stack([frames[:, :, 2], 20 * np.log(scales(frames))]).astype(np.float32)


class Noise:
    name: ClassVar[str] = "noise"
    kind: ClassVar[Kind] = "real"

    def describe_frames(self, image: Grey, frames: Frames) -> Descriptors:
        return np.random.default_rng(image.size + len(frames)).normal(size=(len(frames), 8)).astype(np.float32)


@pytest.fixture(scope="module")
def pairs(photo: Grey) -> list[ImagePair]:
    return make_pairs("camera", photo, copies=3, keypoints=300, seed=0)


def value(row: Score, column: str) -> float:
    """Return a number of a row that has one in this column."""
    number = row[column]
    assert isinstance(number, int | float)
    return float(number)


def test_the_copy_shows_the_photo_through_the_homography(pairs: list[ImagePair]) -> None:
    """Apart from the light: the copy warped back correlates with the photo where both are visible."""
    for pair in pairs:
        homography = pair.ground_truth.matrix
        back = warp(Pyramid(pair.second.image), invert_homography(homography))[0].numpy()
        mask = warp(Pyramid(np.pad(np.full((510, 510), 255, np.uint8), 1)), homography)
        mask = warp(Pyramid(mask[0].numpy().astype(np.uint8)), invert_homography(homography))
        inside = (mask[0].numpy() > 254)[60:-60, 60:-60]
        assert inside.mean() > 0.5
        a, b = back[60:-60, 60:-60][inside], pair.first.image[60:-60, 60:-60][inside].astype(float)
        assert np.corrcoef(a, b)[0, 1] > 0.9


def test_correspondences_are_close_in_position_and_scale(pairs: list[ImagePair]) -> None:
    pair = pairs[0]
    matrix = correspondence_matrix(pair)
    assert matrix.shape == (300, len(pair.second.frames))
    assert matrix.any(1).sum() > 80
    expected = transform_frames(pair.first.frames, pair.ground_truth.matrix)
    distances = np.hypot(*(expected[:, None, axis, 2] - pair.second.frames[None, :, axis, 2] for axis in (0, 1)))
    ratios = scales(expected)[:, None] / scales(pair.second.frames)
    np.testing.assert_array_equal(matrix, (distances <= 3) & (ratios <= 1.5) & (ratios >= 1 / 1.5))


def test_an_oracle_scores_high_and_noise_scores_nothing(pairs: list[ImagePair]) -> None:
    for pair in pairs:
        best, worst = score_warped(pair, Oracle(pair)), score_warped(pair, Noise())
        assert list(best) == ["descriptor", "sequence", "pair", "ap", "correct neighbours"]
        assert value(best, "ap") > 95
        assert value(best, "correct neighbours") > 97
        assert value(worst, "ap") < 5


def test_an_unchanged_photo_is_matched_with_itself(photo: Grey) -> None:
    view = View(photo, detect_dog(photo, 200))
    same = ImagePair("same", "same/0", view, view, from_homography(np.eye(3), photo.shape))
    assert score_warped(same, Sift())["correct neighbours"] == 100


def test_rows_are_means_over_pairs_best_first(pairs: list[ImagePair]) -> None:
    steps: list[tuple[str, int, int | None]] = []
    describers: list[FrameDescriber] = [Noise(), Sift(), Sift(root=True)]
    scores = score_all(pairs, len(pairs), describers, lambda *step: steps.append(step), score_warped)
    rows = mean_scores(scores)
    assert len(steps) == 9
    assert rows[-1]["descriptor"] == "noise"
    sift = next(row for row in rows if row["descriptor"] == "SIFT")
    own = [row for row in scores if row["descriptor"] == "SIFT"]
    assert sift["mAP"] == pytest.approx(np.mean([value(row, "ap") for row in own]))
    assert sift["correct neighbours"] == pytest.approx(np.mean([value(row, "correct neighbours") for row in own]))
    assert sift["pairs"] == 3
    assert float(sift["mAP"]) > 50


def test_the_seed_fixes_the_copies(photo: Grey, pairs: list[ImagePair]) -> None:
    again = make_pairs("camera", photo, copies=3, keypoints=300, seed=0)
    assert all(np.array_equal(a.second.image, b.second.image) for a, b in zip(pairs, again, strict=True))
    other = make_pairs("camera", photo, copies=1, keypoints=300, seed=1)
    assert not np.array_equal(other[0].ground_truth.matrix, pairs[0].ground_truth.matrix)


def test_large_photos_are_scaled_down() -> None:
    y, x = np.mgrid[:900, :1600]
    (pair,) = make_pairs("large", ((x // 50 + y // 50) % 2 * 200).astype(np.uint8), 1, 50, seed=0)
    assert pair.first.image.shape == (360, 640)


def test_a_photo_of_one_row_is_one_line(photo: Grey) -> None:
    with pytest.raises(DoapError, match=r"^line\.png: no keypoint found; is it flat or tiny\?$"):
        make_pairs("line.png", np.resize(photo[:1], (1, 2000)), 1, 100, seed=0)


def test_a_flat_photo_is_one_line() -> None:
    with pytest.raises(DoapError, match="wall: no keypoint"):
        make_pairs("wall", np.full((100, 100), 9, np.uint8), 1, 50, seed=0)


def test_the_benchmark_gives_a_result_a_table_and_a_figure(photo: Grey, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    Image.fromarray(photo[:256, :256]).save(tmp_path / "photos" / "a.png")
    Image.new("L", (90, 90), 128).save(tmp_path / "photos" / "flat.png")
    methods = open_methods(
        ["doap-demo-256b", "sift"], cache=DescriptorCache(tmp_path / "cache"), detector=DEFAULT_DETECTOR
    )
    steps: list[tuple[str, int, int | None]] = []
    benchmark = Warped([tmp_path / "photos"], copies=2, keypoints=100, seed=3)
    result = benchmark.evaluate(methods, lambda *step: steps.append(step))
    assert steps == [("matching", n, 8) for n in range(1, 5)]  # of two photos; the flat one is left out
    expected = make_pairs(str(tmp_path / "photos" / "a.png"), photo[:256, :256], 2, 100, seed=3)
    assert result.scores == [score_warped(pair, method) for pair in expected for method in methods]
    assert result.settings == {
        "data": [str(tmp_path / "photos")], "copies": 2, "keypoints": 100, "seed": 3, "statistics": significance.RULE,
        "left out": [f"{tmp_path / 'photos' / 'flat.png'}: no keypoint found; is it flat or tiny?"],
    }  # fmt: skip
    result.write_json(tmp_path / "warped.json")
    table, tests = Warped.tables(read_result(tmp_path / "warped.json"))
    rows = {str(row["descriptor"]): row for row in mean_scores(result.scores)}
    assert [row.cells for row in table.rows] == [
        (name, f"{row['mAP']:.1f}", f"{row['correct neighbours']:.1f}", {"doap-demo-256b": "32", "sift": "512"}[name])
        for name, row in rows.items()
    ]
    assert table.note == "2 pairs of 1 photo, up to 100 keypoints per image"
    best, other = rows.values()
    assert [row.cells[0] for row in tests.rows] == [other["descriptor"]]
    assert tests.rows[0].cells[1].startswith(f"{float(best['mAP']) - float(other['mAP']):+.1f} [")
    Warped.draw(result, tmp_path / "warped.png")
    with Image.open(tmp_path / "warped.png") as picture:
        pixels = np.asarray(picture.convert("RGB"))
    widths = np.sort(np.unique((pixels == (0x45, 0x75, 0xB4)).all(2).sum(1)))[[0, -1]]
    assert widths[0] == 0  # above and below the bars
    assert widths[1] > 0.5 * pixels.shape[1] * float(next(iter(rows.values()))["mAP"]) / 108


def test_photos_are_evaluated_one_after_the_other_as_if_all_were_in_memory(
    photo: Grey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for name, part in (("a", photo[:200, :200]), ("b", photo[150:400, 100:400]), ("c", photo[200:, 200:])):
        Image.fromarray(part).save(folder / f"{name}.png")
    first, second = (
        open_methods(["doap-demo-128", "sift"], cache=DescriptorCache(tmp_path / name), detector=DEFAULT_DETECTOR)
        for name in ("first", "second")
    )
    paths = [folder / f"{name}.png" for name in "abc"]
    together = [
        pair for seed, path in enumerate(paths, 7) for pair in make_pairs(str(path), read_grey(path), 2, 80, seed)
    ]
    expected = score_all(together, len(together), first, score=score_warped)
    images: list[weakref.ref[Grey]] = []

    def make_and_count(*arguments: Any) -> list[ImagePair]:
        assert all(image() is None for image in images[:-4])  # of photos before the last one
        pairs = make_pairs(*arguments)
        images.extend(weakref.ref(view.image) for pair in pairs for view in (pair.first, pair.second))
        return pairs

    monkeypatch.setattr(warped_module, "make_pairs", make_and_count)
    assert Warped([folder], copies=2, keypoints=80, seed=7).evaluate(second).scores == expected
    assert len(images) == 2 * 2 * 3


def test_a_photo_whose_copies_all_lack_keypoints_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(np.full((90, 90), 128, np.uint8)).save(tmp_path / "faint.png")
    first = np.array([[[3, 0, 40], [0, 3, 40]]], np.float32)
    found = itertools.cycle([first, first[:0], first[:0]])
    monkeypatch.setitem(DETECTORS, DEFAULT_DETECTOR, lambda *_: next(found))
    methods = open_methods(["sift"], cache=DescriptorCache(tmp_path / "cache"), detector=DEFAULT_DETECTOR)
    with pytest.raises(DoapError, match=r"faint\.png: no keypoint found in its warped copies; is it nearly flat"):
        Warped([tmp_path], copies=2).evaluate(methods)


def test_without_a_usable_photo_there_is_no_result(tmp_path: Path) -> None:
    Image.new("L", (90, 90), 128).save(tmp_path / "flat.png")
    methods = open_methods(["sift"], cache=DescriptorCache(tmp_path / "cache"), detector=DEFAULT_DETECTOR)
    with pytest.raises(DoapError, match=r"flat\.png: no keypoint found"):
        Warped([tmp_path]).evaluate(methods)
