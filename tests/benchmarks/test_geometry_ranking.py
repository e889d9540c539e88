import numpy as np
import pytest
from benchmarks.geometry_ranking import geometry_average_precision

from doap.evaluation.image_pairs.scoring import ImagePair, View
from doap.geometry.ground_truth import from_homography
from doap.images.frames import transform_frames
from doap.types import Frames

SHAPE = (200, 240)
HOMOGRAPHY = np.array([[0.9, -0.2, 40], [0.15, 0.85, 10], [1e-4, 0, 1]])


def circle(x: float, y: float, radius: float = 5, angle: float = 0) -> Frames:
    cosine, sine = radius * np.cos(angle), radius * np.sin(angle)
    return np.array([[cosine, -sine, x], [sine, cosine, y]], np.float32)


def pair_of(first: list[Frames], second: list[Frames]) -> ImagePair:
    """The frames of the second image are given in coordinates of the first."""
    image = np.zeros(SHAPE, np.uint8)
    mapped = transform_frames(np.stack(second), HOMOGRAPHY)
    views = View(image, np.stack(first)), View(image, mapped)
    return ImagePair("sequence", "pair", *views, from_homography(HOMOGRAPHY, SHAPE))


def test_frames_far_apart_are_all_found() -> None:
    frames = [circle(60, 60), circle(120, 60), circle(60, 120), circle(120, 120)]
    assert geometry_average_precision(pair_of(frames, frames[::-1])) == 1


def test_two_frames_of_a_point_are_told_apart_by_orientation() -> None:
    frames = [circle(60, 60), circle(60, 60, angle=1.5), circle(120, 120)]
    assert geometry_average_precision(pair_of(frames, frames[::-1])) == 1


def test_a_second_frame_at_nearly_the_same_place_is_wrong() -> None:
    """It proposes the partner of the first; its own, farther away, is a positive that is never proposed."""
    single = circle(120, 120)
    first = [circle(60, 60), circle(61, 60), single]
    second = [circle(60, 60), circle(72, 60), single]
    # Ranks: the two exact pairs in either order, then the second frame with the first one's partner.
    assert geometry_average_precision(pair_of(first, second)) == pytest.approx(2 / 3)


def test_frames_without_overlap_give_no_precision() -> None:
    assert geometry_average_precision(pair_of([circle(60, 60)], [circle(120, 120)])) == 0
