"""Repeatability of detectors by Mikolajczyk's protocol: which frames of two pictures show the same part of a scene."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from doap.geometry.ellipses import overlap, scales
from doap.geometry.homographies import transform_points
from doap.images.frames import transform_frames
from doap.types import Frames

RADIUS = 30.0  # to which the ellipse of the first picture is enlarged, so that small and large frames are judged alike
MAX_RATIO = 2.0  # of the areas of ellipses that can still overlap by half
# Equal circles whose centres are 0.53 radii apart overlap by half; the smaller of two ellipses can lie further off.
REACH = 0.7
PAIRS_AT_ONCE = 4096


@dataclass(frozen=True)
class Overlaps:
    """Frames of the part that both pictures show, and the pairs of them that overlap.

    Attributes:
        first: (N, 2, 3) frames of the first picture, in its own coordinates.
        second: (K, 2, 3) of the second.
        pairs: (P, 2) into both; every pair that overlaps by half is among them.
        overlap: (P,) intersection over union.
    """

    first: Frames
    second: Frames
    pairs: NDArray[np.int64]
    overlap: NDArray[np.float64]

    def repeatability(self, error: float) -> float:
        """Share of the frames of the picture with fewer that have a partner of their own with less overlap error."""
        free = np.ones(len(self.first), bool), np.ones(len(self.second), bool)
        for k in np.argsort(-self.overlap, kind="stable"):
            i, j = self.pairs[k]
            if self.overlap[k] > 1 - error and free[0][i] and free[1][j]:
                free[0][i] = free[1][j] = False
        return float((~free[0]).sum() / max(1, self.fewer))

    def are_true(self, matches: NDArray[np.int64], error: float) -> NDArray[np.bool_]:
        """Which of (Q, 2) matches overlap with less error, (Q,)."""
        true = np.zeros((len(self.first), len(self.second)), bool)
        true[tuple(self.pairs[self.overlap > 1 - error].T)] = True
        return np.asarray(true[tuple(matches.T)])

    @property
    def fewer(self) -> int:
        """Frames of the picture with fewer."""
        return min(len(self.first), len(self.second))


def find_overlaps(
    detected: tuple[Frames, Frames],
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    homography: NDArray[np.float64],
    enlarge: float | None = None,
) -> Overlaps:
    """Compare the frames of two pictures in the second one.

    Args:
        detected: (N, 2, 3) and (K, 2, 3).
        shapes: of the pictures.
        homography: from the first to the second picture.
        enlarge: factor for all ellipses; by default each pair's is that at which the first one has radius 30.
    """
    first = detected[0][_inside(detected[0], homography, shapes[1])]
    second = detected[1][_inside(detected[1], np.linalg.inv(homography), shapes[0])]
    sent = transform_frames(first, homography)
    factor = RADIUS / scales(sent) if enlarge is None else np.full(len(sent), enlarge)
    away = np.linalg.norm(sent[:, None, :, 2] - second[None, :, :, 2], axis=2)
    ratio = np.abs(np.log(scales(sent)[:, None] / scales(second)[None]))
    reach = REACH * factor * np.linalg.norm(sent[:, :, :2], 2, axis=(1, 2))
    i, j = np.nonzero((2 * ratio < np.log(MAX_RATIO)) & (away < reach[:, None]))
    grow = np.stack([factor[i], factor[i], np.ones(len(i))], 1)[:, None].astype(np.float32)
    parts = [slice(k, k + PAIRS_AT_ONCE) for k in range(0, len(i), PAIRS_AT_ONCE)]
    found = [overlap(sent[i[p]] * grow[p], second[j[p]] * grow[p]) for p in parts]
    return Overlaps(first, second, np.stack([i, j], 1), np.concatenate([np.zeros(0), *found]))


def _inside(frames: Frames, homography: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Whether the homography sends the centres of frames into a picture."""
    x, y = transform_points(frames[:, :, 2], homography).T
    return np.asarray((x >= 0) & (y >= 0) & (x <= shape[1] - 1) & (y <= shape[0] - 1))
