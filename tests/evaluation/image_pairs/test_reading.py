from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from PIL import Image

from doap.choices import FrameShape
from doap.datasets.sets.image_pairs import find_pairs
from doap.errors import DoapError
from doap.evaluation.image_pairs.reading import PairReader
from doap.images.detection import detect
from doap.images.frames import Detections
from doap.types import Grey
from support.sets.small_pairs import write_pair, write_sequence


def test_the_ground_truth_is_read_from_the_file(tmp_path: Path) -> None:
    matrix = write_pair(tmp_path / "a", 0)
    write_pair(tmp_path / "b", 0, "points.csv")
    known, labelled = find_pairs(tmp_path)
    np.testing.assert_allclose(PairReader("dog", 50).open(known).ground_truth.matrix, matrix)
    plane = PairReader("dog", 50, "homography").open(labelled).ground_truth
    assert plane.geometry == "homography"
    np.testing.assert_allclose(plane.matrix / plane.matrix[2, 2], matrix, atol=0.05)
    assert plane.points.shape == (12, 4)
    assert PairReader("dog", 50).open(labelled).ground_truth.geometry == "fundamental"


def test_a_reference_is_read_and_detected_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sequence(tmp_path / "graf", 0)
    detected: list[int | None] = []

    def counting(image: Grey, detector: str, frames: FrameShape, limit: int | None) -> Detections:
        detected.append(limit)
        return detect(image, detector, frames, limit)

    monkeypatch.setattr("doap.evaluation.image_pairs.reading.detect", counting)
    reader = PairReader("dog", 60)
    opened = [reader.open(files) for files in find_pairs(tmp_path)]
    assert detected == [60] * 6
    assert all(pair.first is opened[0].first for pair in opened)
    assert len(opened[0].first.frames) == 60


def test_an_image_that_cannot_be_matched_is_named(tmp_path: Path) -> None:
    write_pair(tmp_path / "a", 0)
    (files,) = find_pairs(tmp_path)
    Image.new("L", (80, 60), 99).save(files.second)
    with pytest.raises(DoapError, match=r"b\.png: no keypoint found by dog"):
        PairReader("dog", 50).open(files)
    files.second.write_bytes(b"no picture")
    with pytest.raises(DoapError, match=r"b\.png: not an image"):
        PairReader("dog", 50).open(files)


def test_an_unknown_detector_is_refused() -> None:
    with pytest.raises(DoapError, match=r"detector sift: unknown; choose one of dog, harris"):
        PairReader("sift", 50)


def test_frames_are_those_of_the_shape_requested(tmp_path: Path) -> None:
    write_pair(tmp_path / "a", 0)
    (files,) = find_pairs(tmp_path)
    for shape in get_args(FrameShape):
        view = PairReader("dog", 40, frames=shape).open(files).first
        np.testing.assert_array_equal(view.frames, detect(view.image, "dog", shape, 40).frames)
