"""Scores of a descriptor on an image pair by the rules of VLBenchmarks' descriptor matching benchmark.

Each rule with the file of github.com/vlfeat/vlbenchmarks (branch unstable) that states it:

- Frames take part if their ellipse lies wholly inside both images: 0 < x - r and x + r < width, likewise y, with the
  frame mapped by the homography linearised at its centre (`HomographyConsistencyModel`, `isEllipseInBBox`,
  `warpEllipse`).
- Two frames overlap sufficiently by the rule of `correspondences.overlapping_pairs` (`fastEllipseOverlap`).
- The positives are a greedy one-to-one selection of the sufficiently overlapping pairs, largest overlap first; only
  their number counts (`DescMatchingBenchmark`, `greedyBipartiteMatching`).
- Descriptors are matched one to one, greedily by distance, over all frames that take part (`DataMatcher`, "1to1").
- A match is correct if its frames overlap sufficiently, whether or not they are partners in that selection.
- Matches are ranked by distance, equal ones in the order of the frames of the first image. AP is the sum of the
  precisions at the correct matches over the number of positives; the area under the curve follows the trapezoid rule
  from (recall 0, precision 1) (VLFeat's `vl_pr` and `vl_tpfp`).

The greedy selection need not be the largest possible. If it is smaller than the number of correct matches, recall and
AP exceed 1, as they do in `vl_pr`.

The header of `DescMatchingBenchmark` gives an overlap error of 0.5 and cropping to the common part;
`HomographyConsistencyModel` defaults to 0.4, cropping and a normalised radius of 30.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doap.evaluation.harness.result import Score
from doap.evaluation.image_pairs.correspondences import (
    MAX_DISTANCE,
    OVERLAP_ERROR,
    RADIUS,
    overlapping_pairs,
    select_one_to_one,
)
from doap.evaluation.image_pairs.scoring import ImagePair, describe_pair
from doap.evaluation.metrics.official import official_average_precision
from doap.features import FrameDescriber
from doap.geometry.homographies import invert_homography
from doap.images.frames import transform_frames
from doap.matching.one_to_one import match_one_to_one
from doap.types import Frames, Homography


class PairGeometry(NamedTuple):
    """What does not depend on the descriptor.

    Attributes:
        first: Indices of the frames of the first image that take part.
        second: Indices of the frames of the second image that take part.
        overlapping: (P, 2) sufficiently overlapping pairs, indices into `first` and `second`.
        positives: Number of pairs in the greedy one-to-one selection.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    overlapping: NDArray[np.int64]
    positives: int


class VlbenchmarksScorer:
    """Scores descriptors on pairs with a homography; a `PairScorer`.

    Args:
        overlap_error: Limit of 1 - intersection / union of corresponding frames.
    """

    def __init__(self, overlap_error: float = OVERLAP_ERROR) -> None:
        self.overlap_error = overlap_error
        self._geometry = lru_cache(1)(self._find_geometry)  # one pair is scored with all descriptors in turn

    @property
    def rule(self) -> str:
        """The rule of correspondences and matches in words, for the settings of a result."""
        return (
            f"overlap error under {self.overlap_error:g}, the first image's ellipse enlarged to a radius of "
            f"{RADIUS:g} px, centres within {MAX_DISTANCE:g} of its radii, among frames whose ellipse lies wholly "
            "inside both images; descriptors matched one to one, greedily by distance; a match is correct if its "
            "frames overlap sufficiently; positives are a greedy one-to-one selection of overlapping pairs, largest "
            "overlap first"
        )

    def __call__(self, pair: ImagePair, describer: FrameDescriber) -> Score:
        """Score one descriptor on one pair.

        Returns:
            Row with the columns descriptor, sequence, pair; frames, the smaller number that take part;
            correspondences, the positives; ap, the area under the curve and the matching score, correct matches over
            frames, in percent.
        """
        geometry = self._geometry(pair)
        first, second = describe_pair(pair, describer)
        matches, distances = match_one_to_one(first[geometry.first], second[geometry.second])
        correct = _are_in(matches, geometry.overlapping, len(geometry.second))
        frames = min(len(geometry.first), len(geometry.second))
        return {
            "descriptor": describer.name,
            "sequence": pair.sequence,
            "pair": pair.name,
            "frames": frames,
            "correspondences": geometry.positives,
            "ap": 100 * ranked_average_precision(distances, correct, geometry.positives),
            "area under curve": 100 * official_average_precision(distances, correct, geometry.positives),
            "matching score": 100 * float(correct.sum() / frames) if frames else None,
        }

    def _find_geometry(self, pair: ImagePair) -> PairGeometry:
        forward, backward = pair.ground_truth.matrix, invert_homography(pair.ground_truth.matrix)
        shapes = pair.first.image.shape, pair.second.image.shape
        first = frames_inside_both(pair.first.frames, forward, *shapes)
        second = frames_inside_both(pair.second.frames, backward, *shapes[::-1])
        pairs, overlaps = overlapping_pairs(
            pair.first.frames[first], pair.second.frames[second], forward, self.overlap_error
        )
        selected = select_one_to_one(pairs[np.argsort(-overlaps, kind="stable")])
        return PairGeometry(first, second, pairs, len(selected))


def frames_inside_both(
    frames: Frames, homography: Homography, shape: tuple[int, ...], other_shape: tuple[int, ...]
) -> NDArray[np.int64]:
    """Return the indices of the frames whose ellipses lie wholly inside both images, ascending.

    Args:
        frames: (N, 2, 3) frames of one image.
        homography: Homography from this image to the other.
        shape: (height, width) of this image.
        other_shape: (height, width) of the other image.
    """
    return np.flatnonzero(_are_inside(frames, shape) & _are_inside(transform_frames(frames, homography), other_shape))


def ranked_average_precision(distances: NDArray[np.float64], correct: NDArray[np.bool_], positives: int) -> float:
    """Compute the sum of the precisions at the correct matches, over the positives; equal distances keep their order.

    Args:
        distances: (M,) distances of the matches.
        correct: (M,) which matches are correct.
        positives: Number of positives; without any the result is 0.
    """
    rank = 1 + np.flatnonzero(correct[np.argsort(distances, kind="stable")])
    return float((np.arange(1, len(rank) + 1) / rank).sum() / max(positives, 1))


def _are_inside(frames: Frames, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which ellipses lie inside an image; the border is the first pixel's centre and one past the last's."""
    centres = frames[:, :, 2].astype(np.float64)
    reach = np.linalg.norm(frames[:, :, :2].astype(np.float64), axis=2)
    return np.asarray(((centres - reach > 0) & (centres + reach < [shape[1], shape[0]])).all(1))


def _are_in(pairs: NDArray[np.int64], others: NDArray[np.int64], columns: int) -> NDArray[np.bool_]:
    """Return which (M, 2) pairs are among others, (M,); second indices are less than `columns`."""
    return np.isin(pairs[:, 0] * columns + pairs[:, 1], others[:, 0] * columns + others[:, 1])
