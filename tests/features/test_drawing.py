"""Pictures of matches: the images in their places, dots at the points, and lines between them."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from doap import DoapError
from doap.features.drawing import (
    CORRECT,
    GAP,
    MAX_HEIGHT,
    MAX_LINES,
    MAX_WIDTH,
    MIN_WIDTH,
    TITLE_HEIGHT,
    WRONG,
    Picture,
    draw_image_matches,
    draw_keypoints,
    draw_matches,
    render_matches,
)
from doap.types import Grey

FIRST, SECOND = np.full((300, 640), 90, np.uint8), np.full((200, 700), 160, np.uint8)  # drawn at their own size
OFFSET = np.array([640 + GAP, 0])


def at(picture: Picture, point: NDArray[np.float64]) -> list[int]:
    """Return the colour at a point (x, y) below the title."""
    x, y = np.round(point).astype(int)
    colour: list[int] = picture[TITLE_HEIGHT + y, x].tolist()
    return colour


def saturation(picture: Picture) -> NDArray[np.int64]:
    """Return how far each pixel is from grey."""
    return np.asarray(np.ptp(picture, axis=2), np.int64)


def test_both_images_are_in_their_places(photo: Grey) -> None:
    first, second = np.tile(photo[:300, :300], (1, 2)), np.tile(photo[100:300, 100:420], (1, 2))
    picture = render_matches(first, second, np.zeros((0, 2)), np.zeros((0, 2)), "")
    assert picture.shape == (TITLE_HEIGHT + 300, 600 + GAP + 640, 3)
    body = picture[TITLE_HEIGHT:]
    np.testing.assert_array_equal(body[:, :600], np.repeat(first[:, :, None], 3, 2))
    np.testing.assert_array_equal(body[:200, 600 + GAP :], np.repeat(second[:, :, None], 3, 2))
    assert (body[200:, 600:] == 255).all()
    assert (picture[:TITLE_HEIGHT] == 255).all()


def test_dots_mark_both_ends_and_a_line_joins_them() -> None:
    first, second = np.array([[100.0, 50.0]]), np.array([[500.0, 150.0]])
    picture = render_matches(FIRST, SECOND, first, second, "", np.array([True]))
    ends = first[0], second[0] + OFFSET
    for end in ends:
        assert at(picture, end) == list(CORRECT)
    coloured = saturation(picture[TITLE_HEIGHT:]) > 30
    for share in np.linspace(0.02, 0.98, 49):
        x, y = np.round((1 - share) * ends[0] + share * ends[1]).astype(int)
        assert coloured[y - 1 : y + 2, x].any()
    rows, columns = np.nonzero(coloured)
    along = (ends[1] - ends[0]) / np.linalg.norm(ends[1] - ends[0])
    offsets = np.stack([columns, rows], 1) - ends[0]
    assert np.abs(offsets @ np.array([-along[1], along[0]])).max() < 5  # nothing is drawn elsewhere
    assert (offsets @ along).min() > -5
    assert (offsets @ along).max() < np.linalg.norm(ends[1] - ends[0]) + 5


def test_correct_matches_are_green_and_wrong_ones_red() -> None:
    points = np.array([[50.0, 40.0], [300.0, 180.0]])
    picture = render_matches(FIRST, SECOND, points, points, "", np.array([True, False]))
    assert at(picture, points[0]) == at(picture, points[0] + OFFSET) == list(CORRECT)
    assert at(picture, points[1]) == at(picture, points[1] + OFFSET) == list(WRONG)


def test_without_ground_truth_matches_have_distinct_colours() -> None:
    shift = np.array([300, 0])
    points = np.stack([np.full(12, 90.0), np.linspace(10, 190, 12)], 1)
    picture = render_matches(FIRST, SECOND, points, points + shift, "")
    colours = [tuple(at(picture, point)) for point in points]
    assert len(set(colours)) == 12
    assert colours == [tuple(at(picture, point + shift + OFFSET)) for point in points]


def test_every_match_has_its_dots_but_at_most_150_have_lines() -> None:
    random = np.random.default_rng(0)
    points = random.permutation(np.stack([np.full(400, 20.0), np.linspace(5, 195, 400)], 1))
    picture = render_matches(FIRST, SECOND, points, points + np.array([660, 0]), "", np.ones(400, bool))
    assert all(at(picture, point) == list(CORRECT) for point in points)
    middle = saturation(picture[TITLE_HEIGHT:])[:200, 640 + GAP // 2]  # in the gap, every line crosses it
    assert 0.5 * 400 / 3 < (middle > 30).sum() <= 2 * MAX_LINES
    gaps = np.diff(np.flatnonzero(middle > 30))
    assert gaps.max() < 6  # spread evenly from top to bottom


@pytest.mark.parametrize(("width", "expected"), [(100, MIN_WIDTH), (4000, MAX_WIDTH)])
def test_small_images_are_enlarged_and_large_ones_reduced(width: int, expected: int) -> None:
    image = np.full((width // 2, width), 120, np.uint8)
    point = np.array([[0.75 * width, 0.25 * width]])
    picture = render_matches(image, image, point, point, "", np.array([True]))
    assert abs(picture.shape[1] - expected) <= 2
    scale = (expected - GAP) / 2 / width
    for left in (0, (expected + GAP) // 2):
        assert at(picture, (point[0] + 0.5) * scale - 0.5 + np.array([left, 0])) == list(CORRECT)


@pytest.mark.parametrize(("width", "height"), [(60_000, 3), (3, 60_000), (20, 2400), (3, 3)])
def test_pictures_of_any_shape_of_image_are_small(width: int, height: int) -> None:
    """A scale to a width of 1,200 pixels alone would make a picture of gigabytes of an image 1 pixel wide."""
    image, points = np.full((height, width), 120, np.uint8), np.zeros((1, 2))
    title = "a title that does not fit"
    for other in (image, FIRST):
        assert render_matches(image, other, points, points, title).shape[0] <= MAX_HEIGHT + TITLE_HEIGHT
    reduced = draw_image_matches((image, FIRST), (image.shape, FIRST.shape), (points, points), title)
    assert reduced.shape[0] <= MAX_HEIGHT + TITLE_HEIGHT


@pytest.mark.parametrize("words", [3, 30, 90])
def test_the_title_is_written_above_the_images_and_fits(words: int) -> None:
    picture = render_matches(FIRST, SECOND, np.zeros((0, 2)), np.zeros((0, 2)), "matches " * words)
    rows, columns = np.nonzero(picture[:TITLE_HEIGHT].min(2) < 128)
    assert len(rows) > 100
    assert columns.min() >= GAP - 2
    assert columns.max() < picture.shape[1] - GAP + 2
    assert columns.max() > (0.9 * picture.shape[1] if words == 90 else 100)
    assert (picture[TITLE_HEIGHT:, :640] == 90).all()


def test_titles_have_letters_beyond_ascii() -> None:
    composed, decomposed, other = (
        render_matches(FIRST, SECOND, np.zeros((0, 2)), np.zeros((0, 2)), title) for title in ("ä", "a\u0308", "ö")
    )
    np.testing.assert_array_equal(composed, decomposed)
    assert (composed != other).any()


@pytest.mark.parametrize("suffix", ["png", "jpg", "pdf"])
def test_pictures_are_written_in_common_formats(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "new" / f"matches.{suffix}"
    points = np.array([[100.0, 50.0]])
    draw_matches(FIRST, SECOND, points, points, "title", path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    if suffix == "pdf":
        assert path.read_bytes().startswith(b"%PDF")
        return
    with Image.open(path) as picture:
        written = np.asarray(picture.convert("RGB"), np.int64)
    difference = np.abs(written - render_matches(FIRST, SECOND, points, points, "title"))
    assert difference.mean() < (0.5 if suffix == "jpg" else 1e-9)


def test_other_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DoapError, match=r"m\.doc: figures are written as \.png, \.jpg or \.pdf"):
        draw_matches(FIRST, SECOND, np.zeros((0, 2)), np.zeros((0, 2)), "", tmp_path / "m.doc")
    assert not list(tmp_path.iterdir())


def test_points_far_outside_are_drawn_towards() -> None:
    far = np.array([[1e9, 100.0], [-1e12, 50.0], [30.0, 1e9]])
    assert saturation(render_matches(FIRST, SECOND, np.full((3, 2), 50.0), far, "")).any()
    frames = np.zeros((3, 2, 3), np.float32)
    frames[:, 0, 0] = frames[:, 1, 1] = 1e9
    frames[:, :, 2] = far
    assert draw_keypoints(FIRST, frames, FIRST.shape).shape == (*FIRST.shape, 3)
