"""Matching as the Match tab does it, against the public API."""

from pathlib import Path

import numpy as np
import pytest

import doap
from doap.app.match import pair
from doap.app.match.examples import list_examples
from doap.app.match.pair import MatchOptions, filter_and_verify, match_pictures
from doap.app.match.pictures import Picture, read_picture
from doap.app.match.session import MatchSession, SessionStore
from doap.app.settings import AppSettings
from doap.errors import DoapError
from doap.types import Grey, no_step_progress

SETTINGS = AppSettings()
MODEL = "doap-tiny-256b"


@pytest.fixture(scope="module")
def stereo() -> tuple[tuple[Picture, Picture], tuple[Grey, Grey]]:
    (a, first), (b, second) = (read_picture(str(path), SETTINGS) for path in list_examples()[0].paths)
    return (a, b), (first, second)


def assert_same(first: doap.Matches, second: doap.Matches) -> None:
    np.testing.assert_array_equal(first.indices, second.indices)
    np.testing.assert_array_equal(first.distances, second.distances)
    np.testing.assert_array_equal(first.inliers, second.inliers)


def test_results_are_those_of_the_public_functions(stereo: tuple[tuple[Picture, Picture], tuple[Grey, Grey]]) -> None:
    pictures, images = stereo
    options = MatchOptions((MODEL,), 300, 0.9, "homography", 3.0)
    (result,) = match_pictures(pictures, images, options, "cpu", no_step_progress)
    model = doap.load(MODEL)
    first, second = (
        doap.detect_and_describe(picture.path, model, max_keypoints=300, max_size=1600) for picture in pictures
    )
    expected = doap.match(first, second, ratio=0.9, geometry="homography", threshold=3.0)
    assert_same(result.matches, expected)
    assert result.bytes == 32
    assert set(result.milliseconds) == {"describe", "match", "verify"}


def test_ratio_and_threshold_do_not_describe_again(
    stereo: tuple[tuple[Picture, Picture], tuple[Grey, Grey]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures, images = stereo
    (result,) = match_pictures(pictures, images, MatchOptions((MODEL,), 300), "cpu", no_step_progress)
    for name in ("detect_and_describe", "match", "match_wide"):
        monkeypatch.setattr(pair, name, lambda *_, **__: pytest.fail("matched again"))
    options = MatchOptions((MODEL,), 300, 0.8, "fundamental", 4.0)
    refined = filter_and_verify(result, options)
    expected = doap.match(result.first, result.second, ratio=0.8, threshold=4.0)
    assert_same(refined.matches, expected)
    assert len(refined.matches) < len(result.matches)


def test_a_flat_picture_is_named(tmp_path: Path) -> None:
    from PIL import Image

    Image.new("L", (64, 64), 99).save(tmp_path / "flat.png")
    (flat, image), (other, second) = (
        read_picture(str(path), SETTINGS) for path in (tmp_path / "flat.png", list_examples()[0].paths[0])
    )
    with pytest.raises(DoapError, match=r"^flat\.png: no keypoint found"):
        match_pictures((flat, other), (image, second), MatchOptions(("orb",), 100), "cpu", no_step_progress)


def test_the_store_forgets_the_oldest_visitors() -> None:
    store = SessionStore(2)
    sessions = [MatchSession((), MatchOptions(("orb",)), ()) for _ in range(3)]  # type: ignore[arg-type]
    for name, session in zip("abc", sessions, strict=True):
        store.put(name, session)
    assert (store.get("a"), store.get("b"), store.get("c")) == (None, sessions[1], sessions[2])
    assert store.find(sessions[2].token) is sessions[2]
    assert store.find("ü") is None
    store.drop("c")
    assert len(store) == 1
