"""Scores of a descriptor on an image pair: ranking, matching and the estimated geometry.

All descriptors describe the same frames. The frames of a pair and their correspondences do not depend on the descriptor
and are computed once.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from doap.evaluation.harness.result import Score
from doap.evaluation.image_pairs.correspondences import common_frames, find_correspondences
from doap.evaluation.metrics.average_precision import average_precision
from doap.features import FrameDescriber, Matches
from doap.geometry.ground_truth import GroundTruth
from doap.geometry.homographies import invert_homography
from doap.geometry.robust import verify
from doap.matching.nearest import mutual_nearest, nearest, search_matches
from doap.types import Descriptors, Frames, Grey, StepProgress, no_step_progress

PIXELS = (1, 3, 5, 10)  # thresholds at which mutual matches are counted as correct
CORRECT_PIXELS = 3.0  # largest error of a correct geometry, and of a correct match under epipolar ground truth

# Columns after the descriptor, the sequence and the pair.
COLUMNS = (
    "frames",
    "correspondences",
    "ap",
    "matching score",
    "matches",
    *(f"correct within {pixels} px" for pixels in PIXELS),
    "inliers",
    "geometry error px",
    "geometry correct",
)


@dataclass(frozen=True, eq=False)
class View:
    """An image and its (N, 2, 3) frames."""

    image: Grey
    frames: Frames


@dataclass(frozen=True, eq=False)
class ImagePair:
    """Two images, their frames and the ground truth.

    Attributes:
        sequence: Name of the sequence or scene; pairs of one sequence are not independent.
        name: Name of the pair within the sequence.
        first: Reference image.
        second: Image matched with the reference.
        ground_truth: Geometry that relates the images.
    """

    sequence: str
    name: str
    first: View
    second: View
    ground_truth: GroundTruth

    @cached_property
    def common(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Indices of the frames of each image in the part that both show; all frames if no homography is known."""
        if self.ground_truth.geometry == "fundamental":
            return np.arange(len(self.first.frames)), np.arange(len(self.second.frames))
        forward, backward = self.ground_truth.matrix, invert_homography(self.ground_truth.matrix)
        return (
            common_frames(self.first.frames, forward, self.second.image.shape),
            common_frames(self.second.frames, backward, self.first.image.shape),
        )

    @cached_property
    def partners(self) -> NDArray[np.int64]:
        """Index into `common[1]` of the frame that corresponds to each of `common[0]`; -1 if there is none."""
        first, second = self.common
        partners = np.full(len(first), -1)
        pairs = find_correspondences(self.first.frames[first], self.second.frames[second], self.ground_truth.matrix)
        partners[pairs[:, 0]] = pairs[:, 1]
        return partners


PairScorer = Callable[[ImagePair, FrameDescriber], Score]
"""Function that scores one descriptor on one pair and returns one row."""


def score_pair(pair: ImagePair, describer: FrameDescriber) -> Score:
    """Score one descriptor on one pair.

    AP: each frame in the common part of the first image retrieves its nearest neighbour in that of the second. The
    retrieved pairs are ranked by distance; a pair is correct if it is a correspondence, and the positives are all
    correspondences. Without any correspondence AP is 0: the detector has failed, for all descriptors alike. If the
    ground truth is a fundamental matrix, the number of correct matches is unknown, and AP is None.

    Matching score: number of correct mutual matches in the common parts, divided by the smaller number of frames in
    them. A match is correct if it is a correspondence, or, under epipolar ground truth, within 3 pixels of its
    epipolar lines.

    Returns:
        Row with the columns descriptor, sequence, pair and `COLUMNS`; rates in percent, None for unknown values.
    """
    descriptors = describe_pair(pair, describer)
    matches = match_pair(pair, *descriptors)
    errors = match_errors(pair, matches)
    geometry_error = None if matches.matrix is None else pair.ground_truth.mean_error(matches.matrix)
    is_planar = pair.ground_truth.geometry == "homography"
    frames = min(map(len, pair.common))
    values = (
        frames,
        int((pair.partners >= 0).sum()) if is_planar else None,
        100 * pair_average_precision(pair, *descriptors) if is_planar else None,
        _percent(_correct_matches(pair, *descriptors) if is_planar else errors <= CORRECT_PIXELS, frames),
        len(matches),
        *(_percent(errors <= pixels, len(errors)) for pixels in PIXELS),
        int(matches.inliers.sum()),
        geometry_error,
        100.0 * (geometry_error is not None and geometry_error < CORRECT_PIXELS),
    )
    conditions = {"descriptor": describer.name, "sequence": pair.sequence, "pair": pair.name}
    return conditions | dict(zip(COLUMNS, values, strict=True))


def score_all(
    pairs: Iterable[ImagePair],
    count: int,
    describers: Sequence[FrameDescriber],
    progress: StepProgress = no_step_progress,
    score: PairScorer = score_pair,
) -> list[Score]:
    """Score all descriptors on all pairs.

    Args:
        pairs: Image pairs, which may be read lazily.
        count: Number of pairs.
        describers: Descriptors to score.
        progress: Callback, called as `progress("matching", done, total)` after each descriptor on each pair.
        score: Function that scores one descriptor on one pair.

    Returns:
        One row per pair and descriptor.
    """
    scores = []
    for pair in pairs:
        for describer in describers:
            scores.append(score(pair, describer))
            progress("matching", len(scores), count * len(describers))
    return scores


def describe_pair(pair: ImagePair, describer: FrameDescriber) -> tuple[Descriptors, Descriptors]:
    """Describe all frames of both images; memory-mapped descriptors are read into memory."""
    first, second = (np.array(describer.describe_frames(v.image, v.frames)) for v in (pair.first, pair.second))
    return first, second


def match_pair(pair: ImagePair, first: Descriptors, second: Descriptors) -> Matches:
    """Match all frames of both images by mutual nearest neighbours and estimate the geometry."""
    search = search_matches(first, second)
    height, width = pair.second.image.shape
    geometry = pair.ground_truth.geometry
    verified = verify(*_points(pair, search.indices), (height, width), geometry)
    distances = search.distances, search.second_distances
    return Matches(search.indices, *distances, verified.inliers, geometry, verified.matrix)


def match_errors(pair: ImagePair, matches: Matches) -> NDArray[np.float64]:
    """Compute the error of each match under the ground truth, (P,) in pixels."""
    return pair.ground_truth.errors(*_points(pair, matches.indices))


def pair_average_precision(pair: ImagePair, first: Descriptors, second: Descriptors) -> float:
    """Compute AP of a pair with a homography from the descriptors of all frames; see `score_pair`."""
    if not all(map(len, pair.common)):
        return 0.0
    neighbours, distances = nearest(first[pair.common[0]], second[pair.common[1]])
    return average_precision(distances, neighbours == pair.partners, int((pair.partners >= 0).sum()))


def _correct_matches(pair: ImagePair, first: Descriptors, second: Descriptors) -> NDArray[np.bool_]:
    """Return which mutual matches of the common parts are correspondences."""
    indices, _ = mutual_nearest(first[pair.common[0]], second[pair.common[1]])
    return np.asarray(pair.partners[indices[:, 0]] == indices[:, 1])


def _points(pair: ImagePair, indices: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the matched points (x, y) in both images, each (P, 2)."""
    return pair.first.frames[indices[:, 0], :, 2], pair.second.frames[indices[:, 1], :, 2]


def _percent(correct: NDArray[np.bool_], total: int) -> float | None:
    return 100 * float(correct.sum()) / total if total else None
