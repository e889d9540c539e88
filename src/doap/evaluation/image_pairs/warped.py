"""Matching photos with warped and relit copies of themselves: the truth is known to the pixel.

For each photo, several copies are made, each under its own homography (turn, zoom, tilt, shift) and light
(gamma, contrast, gradient, blur, noise). Keypoints are detected in photo and copy alike; every descriptor
describes the same ones. Each keypoint of the photo proposes its nearest neighbour in the copy; proposals
are ranked by distance, and Average Precision is computed over that one list, as in the Oxford protocol.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from doap.errors import DoapError
from doap.evaluation.metrics.average_precision import average_precision
from doap.features import FrameDescriber
from doap.geometry.ellipses import scales
from doap.geometry.homographies import transform_points
from doap.images.detectors import DETECTORS
from doap.images.extraction import Pyramid, to_bytes
from doap.images.frames import transform_frames
from doap.images.warping import random_homography, relight, warp
from doap.matching.nearest import nearest
from doap.types import Frames, Grey, Homography

DETECTOR = "dog"
MAX_SIDE = 640  # of photo and copy: larger photos are scaled down, which keeps a run short
CLOSE_PIXELS = 3.0
CLOSE_SCALE = 1.5


@dataclass(frozen=True)
class Pair:
    """A photo, a copy, and the homography from the one to the other, with the frames of both."""

    name: str
    photo: Grey
    copy: Grey
    homography: Homography
    photo_frames: Frames
    copy_frames: Frames

    def correspondences(self) -> NDArray[np.bool_]:
        """(N, K): whether frame i of the photo and j of the copy show the same point at the same scale.

        The centre must lie within 3 pixels of where the homography sends it, the scale within a factor
        of 1.5 of what it becomes there.
        """
        sent = transform_frames(self.photo_frames, self.homography)
        apart = np.linalg.norm(sent[:, None, :, 2] - self.copy_frames[None, :, :, 2], axis=2)
        ratio = np.abs(np.log(scales(sent)[:, None] / scales(self.copy_frames)[None]))
        return np.asarray((apart <= CLOSE_PIXELS) & (ratio <= np.log(CLOSE_SCALE)))


@dataclass(frozen=True)
class Score:
    """How well one descriptor matched one pair."""

    pair: str
    descriptor: str
    average_precision: float
    correct_neighbours: float  # share, of the keypoints that have a counterpart, whose neighbour is right
    bytes: int


def make_pairs(name: str, photo: Grey, copies: int, keypoints: int, seed: int) -> list[Pair]:
    """Warped and relit copies of a photo, with the frames of each.

    Raises:
        DoapError: if no keypoint is found.
    """
    photo = _scale_down(photo)
    random = np.random.default_rng(seed)
    light = torch.Generator().manual_seed(seed)
    pyramid = Pyramid(photo)
    frames = DETECTORS[DETECTOR](photo, keypoints)
    if not len(frames):
        raise DoapError(f"{name}: no keypoint found; is it flat or tiny?")
    pairs = []
    for number in range(copies):
        homography = random_homography(photo.shape, random)
        copy = relight(warp(pyramid, homography), light)
        found = DETECTORS[DETECTOR](copy, keypoints)
        if len(found):
            pairs.append(Pair(f"{name}/{number}", photo, copy, homography, frames, found))
    return pairs


def score(pair: Pair, describer: FrameDescriber) -> Score:
    """Match one pair with one descriptor."""
    first = describer.describe_frames(pair.photo, pair.photo_frames)
    second = describer.describe_frames(pair.copy, pair.copy_frames)
    true = pair.correspondences()
    height, width = pair.copy.shape
    x, y = transform_points(pair.photo_frames[:, :, 2], pair.homography).T
    seen = (x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)
    neighbour, distance = nearest(first[seen], second)
    right = true[np.flatnonzero(seen), neighbour]
    positives = int(true[seen].any(1).sum())
    return Score(
        pair.name,
        describer.name,
        average_precision(distance, right, positives),
        float(right.sum() / max(positives, 1)),
        int(first.itemsize * first.shape[1]),
    )


def evaluate(
    pairs: Sequence[Pair], describers: Sequence[FrameDescriber], progress: Callable[[], None] = lambda: None
) -> list[Score]:
    """Every descriptor on every pair; `progress` is called after each."""
    scores = []
    for pair in pairs:
        for describer in describers:
            scores.append(score(pair, describer))
            progress()
    return scores


def summarise(scores: Sequence[Score]) -> list[dict[str, float | str | int]]:
    """A row a descriptor, best mAP first: mean AP and mean share of right neighbours over pairs, in percent."""
    rows: list[dict[str, float | str | int]] = []
    for name in dict.fromkeys(s.descriptor for s in scores):
        own = [s for s in scores if s.descriptor == name]
        rows.append(
            {
                "descriptor": name,
                "mAP": 100 * float(np.mean([s.average_precision for s in own])),
                "right neighbours": 100 * float(np.mean([s.correct_neighbours for s in own])),
                "bytes": own[0].bytes,
                "pairs": len(own),
            }
        )
    return sorted(rows, key=lambda row: -float(row["mAP"]))


def _scale_down(photo: Grey) -> Grey:
    """Halve until the longer side is at most twice MAX_SIDE, then read the pyramid at the exact ratio."""
    height, width = photo.shape
    ratio = max(height, width) / MAX_SIDE
    if ratio <= 1:
        return photo
    target = round(height / ratio), round(width / ratio)
    homography = np.diag([1 / ratio, 1 / ratio, 1.0])
    return to_bytes(warp(Pyramid(photo), homography, target))[0].numpy()
