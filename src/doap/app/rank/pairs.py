"""Pairs of pictures whose patches are ranked, with the geometry that tells which patches are correct."""

from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from doap.choices import DEFAULT_DETECTOR
from doap.demo import photos
from doap.errors import DoapError
from doap.evaluation.image_pairs import warped
from doap.evaluation.image_pairs.scoring import ImagePair, View
from doap.features import detect_and_describe, match
from doap.features.image_input import shrink_image
from doap.geometry.ground_truth import GroundTruth, from_homography
from doap.geometry.homographies import transform_points
from doap.geometry.rotations import relative_rotations
from doap.images.detectors import DETECTORS
from doap.images.frames import transform_frames
from doap.images.reading import read_grey
from doap.networks.registry import load
from doap.types import Descriptors, Grey

MAX_SIDE = 800  # pixels; larger pictures are reduced
KEYPOINTS = 500
MATCHED_KEYPOINTS = 2000
CORRECT_DEGREES = 30.0
MAX_EXTENT_SHOWN = 24.0  # that of the shipped models
GEOMETRY_MODEL = "doap-tiny-128"  # fast on a CPU
GEOMETRY_PIXELS = 3.0  # largest error of a match that agrees with the homography

EXAMPLES = {
    "astronaut": (photos.TEST[0], 1),
    "coffee cup": (photos.TEST[1], 3),
    "motorcycle": (photos.TEST[2], 2),
    "temple": (photos.TEST[3], 5),
}
"""Embedded photos, and the seeds of their homographies."""


@dataclass(frozen=True, eq=False)
class RankPair:
    """Two pictures, their frames and what is known about their geometry.

    Attributes:
        name: Name of the pair.
        first: The picture of the queries.
        second: The picture whose patches are ranked.
        ground_truth: Homography from the first to the second picture; None if it is unknown.
        geometry: One sentence that says where the homography comes from.
        descriptors: Cache of the descriptors of both pictures, by method.
        precisions: Cache of the AP of every query, (N,), by method; NaN without a correct patch.
    """

    name: str
    first: View
    second: View
    ground_truth: GroundTruth | None
    geometry: str
    descriptors: dict[str, tuple[Descriptors, Descriptors]] = field(default_factory=dict)
    precisions: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    @cached_property
    def correct(self) -> NDArray[np.bool_] | None:
        """Which frames of the two pictures show the same point at the same scale and angle, (N, K); None if unknown.

        Position and scale as in `doap.evaluation.image_pairs.warped.correspondence_matrix`. A point may have several
        frames that differ by their angle: the patches of those do not look alike.
        """
        if self.ground_truth is None:
            return None
        pair = ImagePair(self.name, self.name, self.first, self.second, self.ground_truth)
        correct = warped.correspondence_matrix(pair)
        first, second = np.nonzero(correct)
        expected = transform_frames(self.first.frames[first], self.ground_truth.matrix)
        rotations = relative_rotations(expected, self.second.frames[second])
        correct[first, second] = np.abs(rotations) <= np.radians(CORRECT_DEGREES)
        return correct

    def nearest_frame(self, x: float, y: float) -> int:
        """Return the index of the frame of the first picture whose centre is nearest to a point."""
        centres = self.first.frames[:, :, 2].astype(np.float64)
        return int(((centres - (x, y)) ** 2).sum(1).argmin())

    def expected_point(self, query: int) -> tuple[float, float] | None:
        """Return where the homography maps the centre of a frame; None if it is unknown or outside the picture."""
        if self.ground_truth is None:
            return None
        centre = self.first.frames[query : query + 1, :, 2].astype(np.float64)
        x, y = transform_points(centre, self.ground_truth.matrix)[0]
        height, width = self.second.image.shape
        return (float(x), float(y)) if 0 <= x <= width - 1 and 0 <= y <= height - 1 else None

    def first_query(self) -> int:
        """Return the strongest frame with a correct frame in the other picture; 0 if there is none.

        Frames whose patch lies inside the picture come first.
        """
        if self.correct is None:
            return 0
        height, width = self.first.image.shape
        reach = MAX_EXTENT_SHOWN * np.abs(self.first.frames[:, :, :2]).sum(2)  # of a patch, in x and in y
        centres = self.first.frames[:, :, 2]
        inside = ((centres >= reach) & (centres + reach <= (width - 1, height - 1))).all(1)
        has_correct = self.correct.any(1)
        return int((has_correct & inside).argmax() if (has_correct & inside).any() else has_correct.argmax())


@lru_cache(maxsize=len(EXAMPLES))
def example_pair(name: str) -> RankPair:
    """Return an embedded photo and a copy of it under a known homography and another light.

    Raises:
        DoapError: If there is no such example.
    """
    if name not in EXAMPLES:
        raise DoapError(f"{name}: no such example; choose one of {', '.join(EXAMPLES)}")
    path, seed = EXAMPLES[name]
    (pair,) = warped.make_pairs(name, read_grey(path), 1, KEYPOINTS, seed)
    geometry = "The second picture is the first under a known homography and another light."
    return RankPair(name, pair.first, pair.second, pair.ground_truth, geometry)


def own_pair(first: Grey, second: Grey) -> RankPair:
    """Return a pair of pictures with the homography that their matches agree on, if any.

    Raises:
        DoapError: If a picture has no keypoint.
    """
    views = []
    for name, image in (("first", first), ("second", second)):
        small = np.asarray(shrink_image(image, MAX_SIDE))
        frames = DETECTORS[DEFAULT_DETECTOR](small, KEYPOINTS)
        if not len(frames):
            raise DoapError(f"the {name} picture has no keypoint; use a larger one with more texture")
        views.append(View(small, frames))
    ground_truth, geometry = _fit_homography(*views)
    return RankPair("own pictures", views[0], views[1], ground_truth, geometry)


def _fit_homography(first: View, second: View) -> tuple[GroundTruth | None, str]:
    """Return the homography that the matches of two pictures agree on, if any, and a sentence about it."""
    model = load(GEOMETRY_MODEL)
    features = detect_and_describe([first.image, second.image], model, max_keypoints=MATCHED_KEYPOINTS)
    matches = match(*features, geometry="homography", threshold=GEOMETRY_PIXELS)
    if matches.matrix is None:
        return None, (
            f"The geometry is unknown: no homography agrees with the matches of {GEOMETRY_MODEL}. Distances are shown, "
            "but no patch can be called correct and there is no AP."
        )
    return from_homography(matches.matrix, first.image.shape), (
        f"The homography is estimated, not given: {int(matches.inliers.sum())} of {len(matches)} matches of "
        f"{GEOMETRY_MODEL} agree with it. It holds for a plane or a rotating camera; off the plane, patches may be "
        "marked wrongly."
    )
