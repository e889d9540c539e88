"""A small frame set with known geometry: static cameras, planes and 3D scenes in several photos, single photos."""

from dataclasses import dataclass, field
from functools import cache

import cv2
import numpy as np
import skimage
from numpy.typing import NDArray

from doap.datasets.sets.frame_set import SOURCES, FrameSet, Source, encode
from doap.types import Grey, Homography

Points = NDArray[np.float64]
"""Points (N, 2) in pixels, or (N, 3) in space."""

SHAPE = 180, 240  # height, width
# Homography from the first to the second photo of a static camera.
MOTION = np.array([[1.01, 0.004, 2.5], [-0.003, 0.99, -1.25], [0, 0, 1]])
# Homography from photo k to photo k + 1 of a plane.
PLANE = np.array([[0.95, 0.1, 12], [-0.08, 1.02, 6], [1e-4, -5e-5, 1]])


@dataclass
class FrameSetMaker:
    """Collects sequences into a frame set."""

    photos: list[Grey] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    rows: list[tuple[int, int, int, int, float, float]] = field(default_factory=list)
    sequences: list[str] = field(default_factory=list)
    groups: int = 0

    def add(self, name: str, source: Source, photos: dict[str, Grey], centres: list[Points]) -> None:
        """Add a sequence: its photos by name, and the (G, 2) centres of its groups in each, nan where not visible."""
        for (photo_name, photo), points in zip(photos.items(), centres, strict=True):
            for group, (x, y) in enumerate(points):
                if np.isfinite(x):
                    index = len(self.photos)
                    self.rows.append((index, self.groups + group, len(self.sequences), SOURCES.index(source), x, y))
            self.photos.append(encode(photo))
            self.names.append(photo_name)
        self.groups += len(centres[0])
        self.sequences.append(name)

    def frame_set(self) -> FrameSet:
        """Return the set of all added sequences."""
        photos, groups, sequences, sources = (np.array([row[k] for row in self.rows], np.int64) for k in range(4))
        frames = np.array([[[3, 0, x], [0, 3, y]] for *_, x, y in self.rows], np.float32)
        return FrameSet(
            self.photos, self.names, photos, frames, groups, sequences, sources, self.sequences,
            np.stack([groups[:-1], groups[1:]], 1)[sequences[:-1] == sequences[1:]][::7], extent=9.0,
        )  # fmt: skip


def crop_photo(number: int) -> Grey:
    """Return a crop of a photograph, a different one for each number."""
    x, y = (37 * number) % 270, (53 * number) % 330
    photo: Grey = skimage.data.camera()
    return np.ascontiguousarray(photo[y : y + SHAPE[0], x : x + SHAPE[1]])


def warp(image: Grey, matrix: Homography, border: int = cv2.BORDER_CONSTANT) -> Grey:
    """Warp a photo by a homography."""
    return np.asarray(cv2.warpPerspective(image, matrix, SHAPE[::-1], borderMode=border), np.uint8)


def transform(points: Points, matrix: Homography) -> Points:
    """Apply a homography to points (N, 2)."""
    sent = np.column_stack([points, np.ones(len(points))]) @ matrix.T
    return np.asarray(sent[:, :2] / sent[:, 2:])


def sample_points(count: int, seed: int) -> Points:
    """Sample points in a photo, at least 8 pixels from its border."""
    return np.random.default_rng(seed).uniform((8, 8), (SHAPE[1] - 8, SHAPE[0] - 8), (count, 2))


def add_static(maker: FrameSetMaker, folder: str, number: int) -> None:
    """Add two photos, the second darker and shifted; four groups are visible in the first only."""
    first = crop_photo(number)
    second = warp((first * 0.4).astype(np.uint8), MOTION, cv2.BORDER_REPLICATE)
    points = sample_points(30, number)
    there = transform(points, MOTION)
    there[:4] = np.nan
    maker.add(folder, "static", {f"{folder}/a.png": first, f"{folder}/b.png": second}, [points, there])


def add_plane(maker: FrameSetMaker, folder: str, number: int, photos: int = 3) -> None:
    """Add photos of a plane, each warped by PLANE relative to the previous; the last shows 50 of 90 groups."""
    points = sample_points(90, number)
    seen: dict[str, Grey] = {}
    centres = []
    for photo in range(photos):
        matrix = np.linalg.matrix_power(PLANE, photo)
        seen[f"{folder}/{photo}.png"] = warp(crop_photo(number), matrix)
        centres.append(transform(points, matrix))
    centres[-1][50:] = np.nan
    maker.add(folder, "tracks", seen, centres)


def project(points: Points, photo: int) -> Points:
    """Project (P, 3) points into a photo; the camera moves and rotates with the number of the photo."""
    turn, _ = cv2.Rodrigues(np.array([0.02, -0.12, 0.03]) * photo)
    x, y, z = (points @ turn.T + np.array([0.5, 0.05, 0.1]) * photo).T
    return np.column_stack([200 * x / z + SHAPE[1] / 2, 200 * y / z + SHAPE[0] / 2])


def sample_points_3d(count: int, seed: int) -> Points:
    """Sample points in space, in front of the cameras."""
    return np.random.default_rng(seed).uniform((-1.6, -1.3, 3), (1.6, 1.3, 6), (count, 3))


def add_scene(maker: FrameSetMaker, folder: str, number: int, photos: int = 3) -> None:
    """Add photos of points in space."""
    points = sample_points_3d(80, number)
    seen = {f"{folder}/{photo}.png": crop_photo(number + photo) for photo in range(photos)}
    maker.add(folder, "tracks", seen, [project(points, photo) for photo in range(photos)])


def add_singles(maker: FrameSetMaker, folder: str, count: int) -> None:
    """Add unrelated photos."""
    for number in range(count):
        name = f"{folder}/{number:02d}.png"
        maker.add(name, "views", {name: crop_photo(number)}, [sample_points(25, number)])


@cache  # tests do not change it
def small_frame_set() -> FrameSet:
    """Return a set: two static cameras, two planes, two scenes, a collection of 14 photos, 3 unlinked photos."""
    maker = FrameSetMaker()
    add_singles(maker, "set/many", 14)
    for number in range(2):
        add_static(maker, f"set/static{number}", number)
        add_plane(maker, f"set/plane{number}", number)
        add_scene(maker, f"set/scene{number}", number)
    add_singles(maker, "set/few", 3)
    return maker.frame_set()
