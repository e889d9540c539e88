from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from doap.datasets.sets.image_pairs import find_pairs
from doap.errors import DoapError
from doap.evaluation.image_pairs import reading as pairs
from doap.evaluation.image_pairs.reading import PairReader
from doap.images.detectors import DETECTORS
from support.small_pairs import write_pair, write_sequence


def test_the_truth_is_what_the_file_tells(tmp_path: Path) -> None:
    matrix = write_pair(tmp_path / "a", 0)
    write_pair(tmp_path / "b", 0, "points.csv")
    known, labelled = find_pairs(tmp_path)
    np.testing.assert_allclose(PairReader("dog", 50).open(known).truth.matrix, matrix)
    plane = PairReader("dog", 50, "homography").open(labelled).truth
    assert plane.geometry == "homography"
    np.testing.assert_allclose(plane.matrix / plane.matrix[2, 2], matrix, atol=0.05)
    assert plane.points.shape == (12, 4)
    assert PairReader("dog", 50).open(labelled).truth.geometry == "fundamental"


def test_a_reference_is_read_and_detected_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sequence(tmp_path / "graf", 0)
    detected: list[int | None] = []
    plain = DETECTORS["dog"]
    monkeypatch.setitem(pairs.DETECTORS, "dog", lambda image, limit: detected.append(limit) or plain(image, limit))
    reader = PairReader("dog", 60)
    opened = [reader.open(files) for files in find_pairs(tmp_path)]
    assert detected == [60] * 6
    assert all(pair.first is opened[0].first for pair in opened)
    assert len(opened[0].first.frames) == 60


def test_what_cannot_be_matched_is_named(tmp_path: Path) -> None:
    write_pair(tmp_path / "a", 0)
    (files,) = find_pairs(tmp_path)
    Image.new("L", (80, 60), 99).save(files.second)
    with pytest.raises(DoapError, match=r"b\.png: no keypoint found by dog"):
        PairReader("dog", 50).open(files)
    files.second.write_bytes(b"no picture")
    with pytest.raises(DoapError, match=r"b\.png: not a picture"):
        PairReader("dog", 50).open(files)
