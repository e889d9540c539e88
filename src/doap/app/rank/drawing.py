"""Pictures of the two images: keypoints, the query and the first ranks."""

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.app.rank.pairs import RankPair
from doap.app.rank.ranking import RankedList
from doap.types import Frames, Grey

Picture = NDArray[np.uint8]
"""An RGB picture, (H, W, 3) uint8."""
Colour = tuple[int, int, int]

SCALE = 2  # of a picture over its image, for crisp lines
SHOWN_RANKS = 5
QUERY, CORRECT, WRONG, NEUTRAL = (255, 200, 0), (60, 220, 110), (255, 95, 85), (90, 190, 255)
DOT, OUTLINE = (120, 200, 255), (0, 0, 0)
DOT_RADIUS = 3
MARK_RADIUS = 11
PLATE = 26  # pixels, behind a rank
SUBPIXEL_BITS = 4  # OpenCV's fixed-point coordinates


def draw_query(pair: RankPair, query: int, extent: float) -> Picture:
    """Draw the keypoints of the first picture as dots and the patch of the query as a square."""
    picture = _enlarge(pair.first.image)
    for frame in pair.first.frames:
        _dot(picture, frame[:, 2])
    _square(picture, pair.first.frames[query], extent, QUERY)
    _ring(picture, pair.first.frames[query, :, 2], 5, QUERY, 2)
    return picture


def draw_ranks(pair: RankPair, query: int, ranked: RankedList) -> Picture:
    """Draw the first ranks on the second picture: circles for correct items, squares for others, with their ranks.

    A cross marks the point that the homography gives for the query.
    """
    picture = _enlarge(pair.second.image)
    point = pair.expected_point(query)
    if point is not None:
        _cross(picture, np.array(point), QUERY)
    shown = range(min(SHOWN_RANKS, len(ranked)))
    placed: list[NDArray[np.float64]] = []
    for position in reversed(shown):  # the first rank on top
        centre = pair.second.frames[ranked.items[position], :, 2].astype(np.float64)
        is_correct = None if ranked.correct is None else bool(ranked.correct[position])
        _mark(picture, centre, is_correct)
        beside = sum(bool(np.hypot(*(centre - other)) < 2 * MARK_RADIUS / SCALE) for other in placed)
        placed.append(centre)
        _number(picture, centre, position + 1, beside)
    return picture


def to_image_point(x: float, y: float) -> tuple[float, float]:
    """Return the point of an image that a pixel of its picture shows."""
    return (x + 0.5) / SCALE - 0.5, (y + 0.5) / SCALE - 0.5


def _enlarge(image: Grey) -> Picture:
    large = cv2.resize(image, None, fx=SCALE, fy=SCALE, interpolation=cv2.INTER_CUBIC)
    return np.repeat(np.asarray(large, np.uint8)[:, :, None], 3, 2)


def _fixed(points: NDArray[np.floating]) -> NDArray[np.int32]:
    """Return points of the image as fixed-point pixels of the picture."""
    pixels = (np.asarray(points, np.float64) + 0.5) * SCALE - 0.5
    return np.asarray(np.round(pixels.clip(-1e5, 1e5) * 2**SUBPIXEL_BITS), np.int32)


def _dot(picture: Picture, centre: NDArray[np.floating]) -> None:
    x, y = _fixed(centre).tolist()
    for radius, colour in ((DOT_RADIUS + 1, OUTLINE), (DOT_RADIUS, DOT)):
        cv2.circle(picture, (x, y), radius << SUBPIXEL_BITS, colour, cv2.FILLED, cv2.LINE_AA, SUBPIXEL_BITS)


def _ring(picture: Picture, centre: NDArray[np.floating], radius: float, colour: Colour, width: int) -> None:
    x, y = _fixed(centre).tolist()
    fixed = round(radius * 2**SUBPIXEL_BITS)
    cv2.circle(picture, (x, y), fixed, OUTLINE, width + 2, cv2.LINE_AA, SUBPIXEL_BITS)
    cv2.circle(picture, (x, y), fixed, colour, width, cv2.LINE_AA, SUBPIXEL_BITS)


def _lines(picture: Picture, lines: list[NDArray[np.int32]], closed: bool, colour: Colour) -> None:
    for line_colour, width in ((OUTLINE, 5), (colour, 2)):
        cv2.polylines(picture, lines, closed, line_colour, width, cv2.LINE_AA, SUBPIXEL_BITS)


def _square(picture: Picture, frame: Frames, extent: float, colour: Colour) -> None:
    """Draw the outline of a patch."""
    corners = extent * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)], np.float64)
    points = corners @ frame[:, :2].astype(np.float64).T + frame[:, 2]
    _lines(picture, [_fixed(points)], True, colour)


def _cross(picture: Picture, centre: NDArray[np.float64], colour: Colour) -> None:
    arm = 2 * MARK_RADIUS / SCALE
    ends = centre + arm * np.array([[(-1, 0), (1, 0)], [(0, -1), (0, 1)]], np.float64)
    _lines(picture, [_fixed(line) for line in ends], False, colour)


def _mark(picture: Picture, centre: NDArray[np.float64], is_correct: bool | None) -> None:
    if is_correct:
        _ring(picture, centre, MARK_RADIUS, CORRECT, 3)
        return
    half = MARK_RADIUS / SCALE * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)], np.float64)
    _lines(picture, [_fixed(centre + half)], True, NEUTRAL if is_correct is None else WRONG)


def _number(picture: Picture, centre: NDArray[np.float64], rank: int, beside: int) -> None:
    """Write a rank on a dark plate to the right of its mark; `beside` marks at the same place shift it."""
    x, y = (_fixed(centre) >> SUBPIXEL_BITS).tolist()
    left = min(max(x + MARK_RADIUS + 4 + PLATE * beside, 0), picture.shape[1] - PLATE)
    top = min(max(y - PLATE // 2, 0), picture.shape[0] - PLATE)
    cv2.rectangle(picture, (left, top), (left + PLATE - 2, top + PLATE - 2), OUTLINE, cv2.FILLED)
    cv2.putText(
        picture, str(rank), (left + 4, top + PLATE - 8), cv2.FONT_HERSHEY_SIMPLEX, 0.8, (255, 255, 255), 2, cv2.LINE_AA
    )
