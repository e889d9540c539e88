"""Repeatability of detectors by Mikolajczyk's protocol: the frames of two images that cover the same region."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from doap.geometry.ellipses import overlap, scales
from doap.geometry.homographies import transform_points
from doap.images.frames import transform_frames
from doap.types import Frames

RADIUS = 30.0  # of the enlarged ellipse of the first image: small and large frames get the same tolerance
MAX_AREA_RATIO = 2.0  # of ellipses that can overlap by half
# Equal circles whose centres are 0.53 radii apart overlap by half; the smaller of two ellipses can be farther away.
MAX_DISTANCE = 0.7
BLOCK_PAIRS = 4096


@dataclass(frozen=True)
class Overlaps:
    """Frames in the region that both images show, and the pairs that overlap.

    Attributes:
        first: (N, 2, 3) frames of the first image, in its coordinates.
        second: (K, 2, 3) frames of the second image.
        pairs: (P, 2) indices into both; all pairs that overlap by half are included.
        overlap: (P,) intersection over union.
    """

    first: Frames
    second: Frames
    pairs: NDArray[np.int64]
    overlap: NDArray[np.float64]

    def repeatability(self, error: float) -> float:
        """Compute the share of frames with a partner of smaller overlap error, one to one, in the image with fewer."""
        free = np.ones(len(self.first), bool), np.ones(len(self.second), bool)
        for k in np.argsort(-self.overlap, kind="stable"):
            i, j = self.pairs[k]
            if self.overlap[k] > 1 - error and free[0][i] and free[1][j]:
                free[0][i] = free[1][j] = False
        return float((~free[0]).sum() / max(1, self.min_frames))

    def are_correct(self, matches: NDArray[np.int64], error: float) -> NDArray[np.bool_]:
        """Return which of (Q, 2) matches have a smaller overlap error, (Q,)."""
        correct = np.zeros((len(self.first), len(self.second)), bool)
        correct[tuple(self.pairs[self.overlap > 1 - error].T)] = True
        return np.asarray(correct[tuple(matches.T)])

    @property
    def min_frames(self) -> int:
        """Number of frames of the image with fewer."""
        return min(len(self.first), len(self.second))


def find_overlaps(
    detected: tuple[Frames, Frames],
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    homography: NDArray[np.float64],
    enlarge: float | None = None,
) -> Overlaps:
    """Compare the frames of two images in coordinates of the second.

    Args:
        detected: (N, 2, 3) and (K, 2, 3) frames.
        shapes: shapes of the images.
        homography: from the first to the second image.
        enlarge: factor of all ellipses; by default the first ellipse of each pair is enlarged to a radius of 30.
    """
    first = detected[0][_inside(detected[0], homography, shapes[1])]
    second = detected[1][_inside(detected[1], np.asarray(np.linalg.inv(homography), np.float64), shapes[0])]
    mapped = transform_frames(first, homography)
    factor = RADIUS / scales(mapped) if enlarge is None else np.full(len(mapped), enlarge)
    distance = np.linalg.norm(mapped[:, None, :, 2] - second[None, :, :, 2], axis=2)
    ratio = np.abs(np.log(scales(mapped)[:, None] / scales(second)[None]))
    limit = MAX_DISTANCE * factor * np.linalg.norm(mapped[:, :, :2], 2, axis=(1, 2))
    i, j = np.nonzero((2 * ratio < np.log(MAX_AREA_RATIO)) & (distance < limit[:, None]))
    grow = np.stack([factor[i], factor[i], np.ones(len(i))], 1)[:, None].astype(np.float32)
    blocks = [slice(k, k + BLOCK_PAIRS) for k in range(0, len(i), BLOCK_PAIRS)]
    overlaps = [overlap(mapped[i[b]] * grow[b], second[j[b]] * grow[b]) for b in blocks]
    return Overlaps(first, second, np.stack([i, j], 1), np.concatenate([np.zeros(0), *overlaps]))


def _inside(frames: Frames, homography: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return whether the homography maps the centres of frames into an image."""
    x, y = transform_points(frames[:, :, 2], homography).T
    return np.asarray((x >= 0) & (y >= 0) & (x <= shape[1] - 1) & (y <= shape[0] - 1))
