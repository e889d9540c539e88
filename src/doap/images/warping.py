"""Synthetic views of whole images: random homographies and changes of light."""

import math

import cv2
import numpy as np
import torch

from doap.geometry.homographies import transform_points
from doap.images.extraction import Pyramid, average_samples, to_bytes
from doap.images.frames import transform_frames
from doap.images.jitter.views import LEVELS, JitterLevel, jitter_light
from doap.images.tilts import rotation
from doap.types import Grey, Homography

LIGHT = LEVELS["hard"]
CAMERA_DISTANCE = 4.0  # of `view_from_side`, in units of half the longer side


def random_homography(size: tuple[int, ...], random: np.random.Generator, strength: float = 1.0) -> Homography:
    """Sample a homography about the centre of an image.

    Rotation up to 45 degrees, zoom by 0.6 to 1.25, tilt, and shift up to a tenth of each side.

    Args:
        size: (height, width) of the image.
        random: generator.
        strength: Factor of the angle, the logarithm of the zoom, the tilt and the shift; 0 gives the identity.
    """
    height, width = size[:2]
    angle = strength * np.radians(random.uniform(-45, 45))
    zoom = 2 ** (strength * random.uniform(np.log2(0.6), np.log2(1.25)))
    tilt = strength * random.uniform(-0.3, 0.3, 2)
    shift = strength * random.uniform(-0.1, 0.1, 2) * (width, height)
    middle = np.array([(width - 1) / 2, (height - 1) / 2])
    half = max(width, height) / 2
    centre = np.array([[1 / half, 0, -middle[0] / half], [0, 1 / half, -middle[1] / half], [0, 0, 1]])
    move = np.array(
        [
            [zoom * np.cos(angle), -zoom * np.sin(angle), shift[0] / half],
            [zoom * np.sin(angle), zoom * np.cos(angle), shift[1] / half],
            [*tilt, 1],
        ]
    )
    return np.asarray(np.linalg.inv(centre) @ move @ centre)


def warp(pyramid: Pyramid, homography: Homography, size: tuple[int, int] | None = None) -> torch.Tensor:
    """Warp an image by a homography; its border is replicated.

    Args:
        pyramid: Pyramid of the image.
        homography: From the image to the result.
        size: (height, width) of the result; that of the image by default.

    Returns:
        (1, height, width) grey values.
    """
    height, width = size or pyramid.shape
    steps = [(np.arange(2 * n) + 0.5) / 2 - 0.5 for n in (height, width)]
    grid = np.stack(np.meshgrid(steps[1], steps[0]), -1)
    inverse: Homography = np.asarray(np.linalg.inv(homography), np.float64)
    points = transform_points(grid, inverse)
    # The pyramid level follows the distance between sampled pixels at the centre.
    middle = transform_frames(np.array([[[1, 0, width / 2], [0, 1, height / 2]]], np.float32), inverse)
    spacing = torch.tensor([float(np.linalg.norm(middle[0, :, :2], 2))], dtype=torch.float32)
    return average_samples(pyramid.sample(torch.from_numpy(points).float()[None], spacing))


def relight(values: torch.Tensor, light: torch.Generator, level: JitterLevel = LIGHT) -> Grey:
    """Change the light of (1, H, W) grey values at random, as strongly as a level; return an (H, W) uint8 image."""
    return np.asarray(to_bytes(jitter_light(values, level, light))[0].numpy())


def view_from_side(photo: Grey, tilt: float, axis: float, turn: float, fine: int = 8) -> tuple[Grey, Homography]:
    """Show a photo as a plane from the side; the view holds all of it.

    Args:
        photo: (H, W) uint8.
        tilt: Factor by which the plane is compressed at the centre, at least 1.
        axis: Angle of the axis about which the plane is tilted, in radians.
        turn: Angle by which the view is turned, in radians.
        fine: Samples per pixel along each axis, whose mean is taken, against aliasing.

    Returns:
        The view, whose border is that of the photo, replicated; and the homography from the photo to the view.
    """
    slant, half = math.acos(1 / tilt), max(photo.shape) / 2
    height, width = photo.shape
    centre = np.array([[1 / half, 0, -(width - 1) / 2 / half], [0, 1 / half, -(height - 1) / 2 / half], [0, 0, 1]])
    view = np.array([[1, 0, 0], [0, math.cos(slant), 0], [0, math.sin(slant) / CAMERA_DISTANCE, 1]])
    homography = np.linalg.inv(centre) @ rotation(turn) @ view @ rotation(axis) @ centre
    corners = np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], np.float64)
    mapped = transform_points(corners, homography)
    start = np.floor(mapped.min(0))
    columns, rows = (int(side) + 1 for side in np.ceil(mapped.max(0)) - start)
    homography = np.array([[1, 0, -start[0]], [0, 1, -start[1]], [0, 0, 1]]) @ homography
    grow = np.array([[fine, 0, (fine - 1) / 2], [0, fine, (fine - 1) / 2], [0, 0, 1]])
    size = (fine * columns, fine * rows)
    large = cv2.warpPerspective(photo, grow @ homography, size, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(cv2.resize(large, (columns, rows), interpolation=cv2.INTER_AREA), np.uint8), homography
