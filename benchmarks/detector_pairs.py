"""Pairs of images related by a known homography, to evaluate detectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from doap.datasets.official.image_sequences import find_sequences
from doap.images.extraction import to_bytes
from doap.images.frames import detect_dog
from doap.images.jitter.views import LEVELS, jitter_light
from doap.images.reading import find_photos, read_grey
from doap.images.reconstruction.static import edge_map, register_static
from doap.types import Grey

TILTS = (15, 30, 45, 60)  # degrees, cycled
MAX_ROTATION = 45  # degrees
ZOOM = 0.7, 1.4
DISTANCE = 2.5  # of the camera, in units of half the longer side
SUPERSAMPLING = 4
MIN_KEYPOINTS = 800  # of SIFT: photos with fewer are skipped


@dataclass(frozen=True)
class Pair:
    """Two images and the homography from the first to the second."""

    name: str
    kind: str
    first: Grey
    second: Grey
    homography: NDArray[np.float64]


def tilted_pairs(folders: Sequence[Path], count: int, seed: int) -> list[Pair]:
    """Sample photos, and pair each with a copy that is tilted, rotated, zoomed and relit."""
    photos = find_photos(list(folders))
    random = np.random.default_rng(seed)
    light = torch.Generator().manual_seed(seed)
    pairs: list[Pair] = []
    for index in random.permutation(len(photos)):
        if len(pairs) == count:
            break
        photo = read_grey(photos[index])
        if len(detect_dog(photo)) < MIN_KEYPOINTS:
            continue
        tilt = TILTS[len(pairs) % len(TILTS)]
        homography = _sample_homography(photo.shape, tilt, random)
        copy = jitter_light(torch.from_numpy(_warp(photo, homography))[None], LEVELS["easy"], light)
        name = f"{photos[index].parent.name}/{photos[index].stem}"
        pairs.append(Pair(name, f"tilt {tilt}", photo, to_bytes(copy)[0].numpy(), homography))
    return pairs


def static_pairs(folder: Path, count: int) -> list[Pair]:
    """Pair the first and the last exposure of static views, one folder per view, evenly spaced over all views."""
    pairs = []
    views = sorted(path for path in folder.iterdir() if path.is_dir())
    for view in views:
        exposures = find_photos([view])
        first, second = read_grey(exposures[0]), read_grey(exposures[-1])
        if len(detect_dog(first)) < MIN_KEYPOINTS // 2 or len(detect_dog(second)) < MIN_KEYPOINTS // 2:
            continue
        motion = register_static(edge_map(first), edge_map(second))
        if motion is not None:
            pairs.append(Pair(view.name, "static", first, second, motion))
    selected = np.unique(np.linspace(0, len(pairs) - 1, count).round().astype(int)) if pairs else []
    return [pairs[number] for number in selected]


def sequence_pairs(folder: Path) -> list[Pair]:
    """Pair the first image of every sequence with each other image."""
    return [
        Pair(f"{s.name} 1-{n + 1}", s.name, read_grey(s.images[0]), read_grey(s.images[n]), s.homographies[n])
        for s in find_sequences(folder)
        for n in range(1, len(s.images))
    ]


def _sample_homography(shape: tuple[int, ...], tilt: float, random: np.random.Generator) -> NDArray[np.float64]:
    """Sample the homography of a view of a plane tilted by `tilt` degrees, by a rotated and zoomed camera."""
    slant, direction = np.radians(tilt), random.uniform(0, 2 * np.pi)
    rotation = np.radians(random.uniform(-MAX_ROTATION, MAX_ROTATION))
    zoom = np.exp(random.uniform(*np.log(ZOOM)))
    height, width = shape
    half = max(shape) / 2
    centre = np.array([[1 / half, 0, -(width - 1) / 2 / half], [0, 1 / half, -(height - 1) / 2 / half], [0, 0, 1]])
    tilted = np.array([[1, 0, 0], [0, np.cos(slant), 0], [0, np.sin(slant) / DISTANCE, 1]])
    view = _rotation(rotation - direction) @ tilted @ _rotation(direction)
    return np.asarray(np.linalg.inv(centre) @ np.diag([zoom, zoom, 1]) @ view @ centre)


def _rotation(angle: float) -> NDArray[np.float64]:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])


def _warp(photo: Grey, homography: NDArray[np.float64]) -> NDArray[np.float32]:
    """Warp a photo by a homography, with the mean of 4x4 samples per pixel; the border is replicated."""
    height, width = photo.shape
    fine = SUPERSAMPLING
    grow = np.array([[fine, 0, (fine - 1) / 2], [0, fine, (fine - 1) / 2], [0, 0, 1]])
    size = fine * width, fine * height
    large = cv2.warpPerspective(photo, grow @ homography, size, flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(cv2.resize(large.astype(np.float32), (width, height), interpolation=cv2.INTER_AREA), np.float32)
