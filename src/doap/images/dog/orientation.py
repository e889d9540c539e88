"""Orientations of keypoints: peaks of the histogram of gradient directions around them, as in OpenCV's SIFT."""

import torch
from torch import Tensor

from doap.images.dog.extrema import Extrema
from doap.images.dog.scale_space import LAYERS, SIGMA, Stacks

BINS = 36
PEAK_RATIO = 0.8  # of a peak to the highest one, from which on it is an orientation
WINDOW = 1.5  # sigma of the Gaussian window, in units of the keypoint's sigma
RADIUS = 4.5  # half side of the window
REACH = round(RADIUS * SIGMA * 2 ** ((LAYERS + 0.5) / LAYERS))  # largest half side, in pixels
CHUNK_SIZE = 8192  # keypoints
FIXED_POINT = 2.0**14  # of the votes, whose sum in a bin is below 2^17
# OpenCV's polynomial for the arc tangent of 0..1 in degrees, which is up to 0.01 degrees off.
ARCTANGENT = (-2.539725, 8.914001, -18.667446, 57.283627)


def find_orientations(space: Stacks, extrema: Extrema) -> tuple[Tensor, Tensor]:
    """Find the orientations of keypoints; one keypoint can have several.

    Args:
        space: Gaussian levels.
        extrema: The keypoints.

    Returns:
        rows: (M,) index of the keypoint of each orientation, ascending.
        degrees: (M,) orientations in [0, 360), clockwise in the image; ascending for one keypoint.
    """
    sigmas = extrema.sigma
    x, y, layer = extrema.pixel.unbind(1)
    planes = torch.stack([*space.planes(extrema.octave, extrema.image, layer), x, y], 1)
    rows, degrees = [planes.new_zeros(0)], [sigmas.new_zeros(0)]
    for start in range(0, len(planes), CHUNK_SIZE):
        chunk = slice(start, start + CHUNK_SIZE)
        row, angle = _find_peaks(_smooth(_histograms(space.flat, planes[chunk], sigmas[chunk])))
        rows.append(row + start)
        degrees.append(angle)
    all_rows, all_degrees = torch.cat(rows), torch.cat(degrees)
    by_degrees = all_degrees.argsort(stable=True)
    order = by_degrees[all_rows[by_degrees].argsort(stable=True)]
    return all_rows[order], all_degrees[order]


def _histograms(values: Tensor, planes: Tensor, sigmas: Tensor) -> Tensor:
    """Compute the histograms of gradient directions, weighted by magnitude and window, (N, BINS).

    Args:
        values: All levels.
        planes: (N, 5) address, height and width of the level of each keypoint, and its x and y.
        sigmas: (N,) of the keypoints.
    """
    address, height, width, x, y = planes[:, :, None].unbind(1)
    outer = torch.arange(-REACH - 1, REACH + 2, device=planes.device)
    rows, columns = y + outer, x + outer
    starts = address + torch.minimum(rows.clamp(min=0), height - 1) * width
    values = values[starts[:, :, None] + torch.minimum(columns.clamp(min=0), width - 1)[:, None]]
    across = values[:, 1:-1, 2:] - values[:, 1:-1, :-2]
    up = values[:, :-2, 1:-1] - values[:, 2:, 1:-1]
    steps = outer[1:-1]
    radius = (RADIUS * sigmas).round()[:, None]
    inside_y, inside_x = (
        (steps.abs() <= radius) & (line[:, 1:-1] > 0) & (line[:, 1:-1] < side - 1)
        for line, side in ((rows, height), (columns, width))
    )
    profile = torch.exp(-(steps**2) / (2 * (WINDOW * sigmas)[:, None] ** 2))
    weights = (profile * inside_y)[:, :, None] * (profile * inside_x)[:, None]
    votes = (weights * torch.sqrt(across**2 + up**2)).flatten(1)
    bins = (_degrees(up, across) * (BINS / 360)).round().long().flatten(1) % BINS
    # Sums of integers do not depend on the order of the additions, which varies on a GPU.
    histograms = torch.zeros(len(planes), BINS, dtype=torch.int32, device=planes.device)
    histograms.scatter_add_(1, bins, (votes * FIXED_POINT).round().int())
    return histograms.float() / FIXED_POINT


def _degrees(y: Tensor, x: Tensor) -> Tensor:
    """Compute the angle of (x, y) in [0, 360] degrees."""
    smaller, larger = torch.minimum(x.abs(), y.abs()), torch.maximum(x.abs(), y.abs())
    ratio = smaller / (larger + torch.finfo(torch.float64).eps)
    square = ratio**2
    angle = torch.zeros_like(ratio)
    for coefficient in ARCTANGENT:
        angle = angle * square + coefficient
    angle = angle * ratio
    angle = torch.where(x.abs() >= y.abs(), angle, 90 - angle)
    angle = torch.where(x < 0, 180 - angle, angle)
    return torch.where(y < 0, 360 - angle, angle)


def _smooth(histograms: Tensor) -> Tensor:
    """Smooth circular histograms by [1 4 6 4 1] / 16."""
    near = histograms.roll(1, 1) + histograms.roll(-1, 1)
    far = histograms.roll(2, 1) + histograms.roll(-2, 1)
    return far / 16 + near / 4 + histograms * (6 / 16)


def _find_peaks(histograms: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows and angles of the peaks, refined by parabolas."""
    before, after = histograms.roll(1, 1), histograms.roll(-1, 1)
    highest = histograms.amax(1, keepdim=True)
    peaks = (histograms > before) & (histograms > after) & (histograms >= PEAK_RATIO * highest)
    row, column = peaks.nonzero().unbind(1)
    left, centre, right = (values[row, column] for values in (before, histograms, after))
    position = (column + (left - right) / (2 * (left - 2 * centre + right))) % BINS
    degrees = 360 - position * (360 / BINS)  # the histogram counts upwards, image coordinates downwards
    return row, torch.where(degrees >= 360, 0, degrees)
