"""Figures of COLMAP's sparse models, from their binary or text files."""

import math
import struct
from dataclasses import dataclass
from pathlib import Path

from doap.errors import DoapError

COUNT = struct.Struct("<Q")
POINT = struct.Struct("<Q3d3BdQ")  # id, position, colour, reprojection error, length of the track
TRACK_ELEMENT = 8  # bytes: number of the image and of its keypoint


Points = list[tuple[int, float]]
"""Length of the track and reprojection error of each point."""


@dataclass(frozen=True)
class ModelStatistics:
    """What a sparse model consists of; the figures of `colmap model_analyzer`.

    Attributes:
        registered_images: Number of images with a pose.
        points: Number of 3D points.
        observations: Number of keypoints that observe a point.
        mean_track_length: Observations per point.
        mean_observations_per_image: Observations per registered image.
        mean_reprojection_error: In pixels, mean over the points of the mean over their observations.
    """

    registered_images: int
    points: int
    observations: int
    mean_track_length: float
    mean_observations_per_image: float
    mean_reprojection_error: float


def read_statistics(folder: Path) -> ModelStatistics:
    """Read the figures of a sparse model.

    Args:
        folder: Folder with images and points3D, as .bin or .txt; the binary files are read if there are both.

    Raises:
        DoapError: If there is no model or a file is damaged.
    """
    suffix = next((suffix for suffix in (".bin", ".txt") if (folder / f"points3D{suffix}").is_file()), None)
    files = folder / f"images{suffix}", folder / f"points3D{suffix}"
    if suffix is None or not files[0].is_file():
        raise DoapError(f"{folder}: no COLMAP model here (images and points3D, .bin or .txt)")
    parse = _parse_binary if suffix == ".bin" else _parse_text
    try:
        images, points = parse(*(path.read_bytes() for path in files))
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise DoapError(f"{folder}: the files of this model are damaged; reconstruct again") from error
    observations = sum(length for length, _ in points)
    errors = [error for _, error in points if error >= 0]  # -1 means not computed
    return ModelStatistics(
        registered_images=images,
        points=len(points),
        observations=observations,
        mean_track_length=observations / len(points) if points else 0.0,
        mean_observations_per_image=observations / images if images else 0.0,
        mean_reprojection_error=math.fsum(errors) / len(errors) if errors else 0.0,
    )


def _parse_binary(images: bytes, points: bytes) -> tuple[int, Points]:
    """Return the number of images, and track length and error of each point."""
    parsed: Points = []
    offset = COUNT.size
    for _ in range(COUNT.unpack_from(points)[0]):
        *_, error, length = POINT.unpack_from(points, offset)
        offset += POINT.size + TRACK_ELEMENT * length
        parsed.append((length, error))
    if offset != len(points):
        raise ValueError("the file does not end after the last point")
    return COUNT.unpack_from(images)[0], parsed


def _parse_text(images: bytes, points: bytes) -> tuple[int, Points]:
    """Return the same of text files: two lines per image, whose second can be empty, and one line per point."""
    rows = [line for line in images.decode().split("\n") if not line.startswith("#")]
    columns = [line.split() for line in points.decode().splitlines() if line.strip() and not line.startswith("#")]
    # Columns 0 to 6 are id, position and colour; the track follows the error, two columns per observation.
    return len(rows) // 2, [((len(row) - 8) // 2, float(row[7])) for row in columns]
