"""Example pairs of the Match tab: embedded photos, and tilted or turned copies of them."""

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from doap.demo import photos
from doap.files import atomic_file, cache_root
from doap.geometry.homographies import transform_points
from doap.images.reading import open_image

BLUR = 0.8  # standard deviation per unit of reduction, as a camera has


@dataclass(frozen=True)
class Example:
    """Two pictures to match.

    Attributes:
        name: Name in the list of examples.
        paths: The two files.
    """

    name: str
    paths: tuple[Path, Path]


@lru_cache(1)
def list_examples() -> tuple[Example, ...]:
    """Return the examples; the copies are written to the cache folder when they are first asked for."""
    folder = cache_root() / "app"
    astronaut, coffee = photos.TEST[0], photos.TEST[1]
    turned, tilted = folder / "astronaut-turned.png", folder / "coffee-tilted.png"
    _write_view(astronaut, turned, _turn_matrix(35.0, 0.75))
    _write_view(coffee, tilted, np.diag([0.25, 1.0, 1.0]))
    return (
        Example("motorcycle, two cameras", photos.STEREO),
        Example("astronaut, turned and reduced", (astronaut, turned)),
        Example("coffee, seen from the side (needs wide)", (coffee, tilted)),
    )


def find_example(name: str) -> Example:
    """Return an example by its name."""
    return next(example for example in list_examples() if example.name == name)


def _turn_matrix(degrees: float, scale: float) -> NDArray[np.float64]:
    """Return the homography that turns an image and scales it."""
    return np.vstack([cv2.getRotationMatrix2D((0, 0), degrees, scale), [0, 0, 1]])


def _write_view(source: Path, target: Path, matrix: NDArray[np.float64]) -> None:
    """Write a photo as seen through a homography; it is blurred first where it is reduced."""
    with open_image(source, source) as image:
        photo = np.asarray(image.convert("RGB"))
    scales = np.linalg.norm(matrix[:2, :2], axis=0)
    blur_x, blur_y = (BLUR * math.sqrt(max(1e-6, 1 / scale**2 - 1)) for scale in scales)
    blurred = cv2.GaussianBlur(photo, (0, 0), sigmaX=blur_x, sigmaY=blur_y)
    height, width = photo.shape[:2]
    corners = transform_points(np.array([[0, 0], [width, 0], [0, height], [width, height]], np.float64), matrix)
    shift = np.eye(3)
    shift[:2, 2] = -corners.min(0)
    size = tuple(math.ceil(side) for side in np.ptp(corners, axis=0))
    view = cv2.warpPerspective(blurred, shift @ matrix, size, borderValue=(96, 96, 96))
    with atomic_file(target) as temporary:
        Image.fromarray(np.asarray(view, np.uint8)).save(temporary)
