"""Tilted views of a photo, and which of their frames show the same point."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from doap.choices import DEFAULT_DETECTOR
from doap.datasets.sets.frame_set import Encoded, decode_photo, encode
from doap.geometry.ellipses import scales
from doap.geometry.homographies import invert_homography, transform_points
from doap.geometry.rotations import rotation_angles
from doap.images.detectors import DETECTORS
from doap.images.frames import transform_frames
from doap.images.jitter.views import LEVELS
from doap.images.reading import shrink
from doap.images.warping import relight, view_from_side
from doap.types import Frames, Grey, Homography

WEBP_QUALITY = 95
FINE = 4  # samples per pixel along each axis of a view
MAX_DISTANCE = 1.0  # between the centres of corresponding frames, in scales of the frame of the view
MAX_OCTAVES = 0.8  # between their scales
TILTED = 2.0  # tilt from which a view is called tilted
MIN_POINTS = 50  # that are kept of a photo without points in tilted views
BORDER = 6.0  # scales of a frame that must lie within the photo

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class TiltSettings:
    """How views are made.

    Attributes:
        views: Number of tilted views per photo.
        max_tilt: Largest tilt; tilts are uniform from 1.
        keypoints: Number of strongest frames per view.
        max_side: Longer side of the photos, in pixels; larger ones are reduced.
        detector: Name of a detector in `DETECTORS`.
        light: Level of `LEVELS` whose changes of light the views have.
        seed: Determines the views.
    """

    views: int = 4
    max_tilt: float = 8.0
    keypoints: int = 1500
    max_side: int = 640
    detector: str = DEFAULT_DETECTOR
    light: str = "tough"
    seed: int = 0


@dataclass(frozen=True)
class PhotoTask:
    """A photo to make views of: its index, name and encoded content."""

    index: int
    name: str
    encoded: Encoded
    settings: TiltSettings


@dataclass(frozen=True, eq=False)
class PhotoViews:
    """Views of a photo, the first of which is the photo itself.

    Attributes:
        encoded: The views, encoded.
        homographies: (V, 3, 3) from each view to the photo.
        frames: (N, 2, 3) frames that have a correspondence.
        views: (N,) view of each frame.
        points: (N,) frames of the same point have the same number.
    """

    encoded: list[Encoded]
    homographies: NDArray[np.float64]
    frames: Frames
    views: Ids
    points: Ids


def make_views(task: PhotoTask) -> PhotoViews:
    """Make views of a photo, detect frames in all of them, and find those that correspond to frames of the photo."""
    settings = task.settings
    random = np.random.default_rng((settings.seed, task.index))
    light = torch.Generator().manual_seed(int(random.integers(1 << 62)))
    photo = shrink(decode_photo(task.encoded, task.name), settings.max_side)
    detect = DETECTORS[settings.detector]
    reference = _inside(detect(photo, settings.keypoints), np.eye(3), photo)
    images, maps, parts = [photo], [np.eye(3)], [reference]
    points = [np.arange(len(reference))]
    for _ in range(settings.views):
        tilt = random.uniform(1, settings.max_tilt)
        axis, turn = random.uniform(0, 2 * np.pi, 2).tolist()
        clean, homography = view_from_side(photo, tilt, axis, turn, FINE)
        view = relight(torch.from_numpy(clean)[None].float(), light, LEVELS[settings.light])
        frames = _inside(detect(view, settings.keypoints), homography, photo)
        first, second = match_frames(reference, frames, homography)
        images.append(view)
        maps.append(invert_homography(homography))
        parts.append(frames[second])
        points.append(first)
    kept = _thin(parts, points, maps, random)
    parts = [part[np.isin(ids, kept)] for part, ids in zip(parts, points, strict=True)]
    points = [ids[np.isin(ids, kept)] for ids in points]
    return PhotoViews(
        [encode(image, WEBP_QUALITY) for image in images],
        np.stack(maps),
        np.concatenate(parts),
        np.repeat(np.arange(len(parts)), [len(part) for part in parts]),
        np.concatenate(points),
    )


def _thin(parts: list[Frames], points: list[Ids], maps: list[Homography], random: np.random.Generator) -> Ids:
    """Return the points that are found in a view of tilt 2 or more, and at most as many of the other points in views.

    Without this, most points would be seen at small tilts only, where detectors find more of them.
    """
    tilted, others = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for frames, ids, homography in zip(parts[1:], points[1:], maps[1:], strict=True):
        circles = frames.copy()
        circles[:, :, :2] = np.eye(2)
        tilts = np.linalg.cond(transform_frames(circles, homography)[:, :, :2].astype(np.float64)) if len(ids) else ids
        tilted, others = np.append(tilted, ids[tilts >= TILTED]), np.append(others, ids[tilts < TILTED])
    tilted = np.unique(tilted)
    others = random.permutation(np.setdiff1d(others, tilted))
    return np.append(tilted, others[: max(len(tilted), MIN_POINTS)])


def match_frames(first: Frames, second: Frames, homography: Homography) -> tuple[Ids, Ids]:
    """Find the frames that show the same point at about the same scale, one to one.

    A frame of the second image corresponds to a frame of the first whose centre is mapped to within one scale of its
    own, and whose scale to within 0.8 octaves. Each must be the nearest of the other. Among the frames of a point that
    has several orientations, those of the smallest rotation between them are paired.

    Args:
        first: (N, 2, 3) frames of the first image.
        second: (K, 2, 3) frames of the second image.
        homography: From the first image to the second.

    Returns:
        Indices into `first` and into `second`, (C,) each.
    """
    if not len(first) or not len(second):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    mapped = transform_frames(first, homography).astype(np.float64)
    candidates = second.astype(np.float64)
    own = scales(candidates)
    distance = np.linalg.norm(mapped[:, None, :, 2] - candidates[None, :, :, 2], axis=2) / own
    octaves = np.abs(np.log2(np.maximum(scales(mapped), 1e-12)[:, None] / own))
    angles = np.abs(np.angle(np.exp(1j * (rotation_angles(mapped)[:, None] - rotation_angles(candidates)))))
    cost = (distance / MAX_DISTANCE) ** 2 + (octaves / MAX_OCTAVES) ** 2 + angles / np.pi
    cost[(distance > MAX_DISTANCE) | (octaves > MAX_OCTAVES)] = np.inf
    best, back = cost.argmin(1), cost.argmin(0)
    rows = np.arange(len(first))
    kept = np.isfinite(cost[rows, best]) & (back[best] == rows)
    return rows[kept], best[kept]


def _inside(frames: Frames, homography: Homography, photo: Grey) -> Frames:
    """Return the frames of a view whose ellipses, enlarged `BORDER` times, lie within the photo."""
    back = transform_frames(frames, invert_homography(homography)).astype(np.float64)
    margin = BORDER * np.linalg.norm(back[:, :, :2], axis=2)
    last = np.array(photo.shape[::-1]) - 1
    centres = transform_points(frames[:, :, 2].astype(np.float64), invert_homography(homography))
    return np.asarray(frames[((centres >= margin) & (centres <= last - margin)).all(1)])
