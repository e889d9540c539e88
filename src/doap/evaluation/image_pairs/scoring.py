"""What a descriptor does on a pair of real images: it ranks, it matches, and a geometry comes out or does not.

Every descriptor describes the same frames. What is known of a pair before any of them, its frames and which of them
correspond, is found once.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from doap.evaluation.harness.result import Score
from doap.evaluation.image_pairs.correspondences import common_part, corresponding
from doap.evaluation.metrics.average_precision import average_precision
from doap.features import FrameDescriber, Matches
from doap.geometry.ground_truth import GroundTruth
from doap.geometry.robust import verify
from doap.matching.nearest import mutual_nearest, nearest
from doap.types import Descriptors, Frames, Grey

PIXELS = (1, 3, 5, 10)  # at which mutual matches are judged
CORRECT_PIXELS = 3.0  # that a right geometry is off, and that a match is where only epipolar lines tell

# What each row of scores measures, after the descriptor, the sequence and the pair.
MEASURED = (
    "frames",
    "correspondences",
    "ap",
    "matching score",
    "matches",
    *(f"right within {pixels} px" for pixels in PIXELS),
    "inliers",
    "geometry error px",
    "geometry right",
)


@dataclass(frozen=True)
class View:
    """An image and its (N, 2, 3) frames."""

    image: Grey
    frames: Frames


@dataclass(frozen=True)
class ImagePair:
    """Two images, their frames and the truth.

    Attributes:
        sequence: what it belongs to; pairs of one sequence are not independent.
        name: within the sequence.
        first: the reference.
        second: what is matched with it.
        truth: how the two relate.
    """

    sequence: str
    name: str
    first: View
    second: View
    truth: GroundTruth

    @cached_property
    def common(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The frames of either image in the part that both show; all of them where no homography tells."""
        if self.truth.geometry == "fundamental":
            return np.arange(len(self.first.frames)), np.arange(len(self.second.frames))
        there, back = self.truth.matrix, np.asarray(np.linalg.inv(self.truth.matrix), np.float64)
        return (
            common_part(self.first.frames, there, self.second.image.shape),
            common_part(self.second.frames, back, self.first.image.shape),
        )

    @cached_property
    def partners(self) -> NDArray[np.int64]:
        """Of each frame in the common part of the first image, its place in that of the second; -1 if it has none."""
        first, second = self.common
        partners = np.full(len(first), -1)
        pairs = corresponding(self.first.frames[first], self.second.frames[second], self.truth.matrix)
        partners[pairs[:, 0]] = pairs[:, 1]
        return partners


def score(pair: ImagePair, describer: FrameDescriber) -> Score:
    """One descriptor on one pair: a row of scores, `MEASURED` says of what; rates in percent, None for the unknown.

    AP: each frame of the first image's common part proposes its nearest neighbour in that of the second; proposals are
    ranked by distance, right is one that is a correspondence, and the positives are all correspondences. Where there
    is no correspondence, AP is 0: the detector has failed, for every descriptor alike. Where the truth is a fundamental
    matrix, nobody knows how many right matches there are, and AP is None.

    Matching score: right mutual matches of the common parts over the smaller number of frames in them. Right is a
    correspondence, or what lies within 3 pixels of its epipolar lines.
    """
    described = describe_pair(pair, describer)
    found = match_all(pair, *described)
    errors = errors_of(pair, found)
    off = None if found.matrix is None else pair.truth.error_of(found.matrix)
    planar = pair.truth.geometry == "homography"
    correspondences = int((pair.partners >= 0).sum()) if planar else None
    values = (
        min(map(len, pair.common)),
        correspondences,
        100 * pair_average_precision(pair, *described) if planar else None,
        _percent(_right_matches(pair, *described) if planar else errors <= CORRECT_PIXELS, min(map(len, pair.common))),
        len(found),
        *(_percent(errors <= pixels, len(errors)) for pixels in PIXELS),
        int(found.inliers.sum()),
        off,
        100.0 * (off is not None and off < CORRECT_PIXELS),
    )
    conditions = {"descriptor": describer.name, "sequence": pair.sequence, "pair": pair.name}
    return conditions | dict(zip(MEASURED, values, strict=True))


def score_all(
    pairs: Iterable[ImagePair],
    describers: Sequence[FrameDescriber],
    progress: Callable[[], None] = lambda: None,
) -> list[Score]:
    """Every descriptor on every pair; `progress` is called after each."""
    scores = []
    for pair in pairs:
        for describer in describers:
            scores.append(score(pair, describer))
            progress()
    return scores


def describe_pair(pair: ImagePair, describer: FrameDescriber) -> tuple[Descriptors, Descriptors]:
    """The descriptors of all frames of both images, in memory, whether they were remembered on disk or not."""
    first, second = (np.array(describer.describe_frames(v.image, v.frames)) for v in (pair.first, pair.second))
    return first, second


def match_all(pair: ImagePair, first: Descriptors, second: Descriptors) -> Matches:
    """Mutual nearest neighbours among all frames, as a user has them, and the geometry they agree on."""
    indices, distances = mutual_nearest(first, second)
    points = pair.first.frames[indices[:, 0], :, 2], pair.second.frames[indices[:, 1], :, 2]
    height, width = pair.second.image.shape
    found = verify(*points, (height, width), pair.truth.geometry)
    return Matches(indices, distances, found.inliers, found.matrix)


def errors_of(pair: ImagePair, found: Matches) -> NDArray[np.float64]:
    """By how many pixels each match contradicts the truth."""
    points = pair.first.frames[found.indices[:, 0], :, 2], pair.second.frames[found.indices[:, 1], :, 2]
    return pair.truth.errors(*points)


def pair_average_precision(pair: ImagePair, first: Descriptors, second: Descriptors) -> float:
    """AP of a pair whose truth is a homography, given the descriptors of all frames; see `score`."""
    if not all(map(len, pair.common)):
        return 0.0
    neighbours, distances = nearest(first[pair.common[0]], second[pair.common[1]])
    return average_precision(distances, neighbours == pair.partners, int((pair.partners >= 0).sum()))


def _right_matches(pair: ImagePair, first: Descriptors, second: Descriptors) -> NDArray[np.bool_]:
    """Which mutual matches of the common parts are correspondences."""
    indices, _ = mutual_nearest(first[pair.common[0]], second[pair.common[1]])
    return np.asarray(pair.partners[indices[:, 0]] == indices[:, 1])


def _percent(right: NDArray[np.bool_], of: int) -> float | None:
    return 100 * float(right.sum()) / of if of else None
