"""Affine adaptation and orientations of frames, from the gradients around them.

Both sample the neighbourhood of a frame in its own coordinates, so that the result is covariant with the image.
"""

# Implemented here because OpenCV has no affine adaptation, and kornia's Harris-affine frames are less repeatable on
# tilted photos (benchmarks/detectors.py) and take twice as long (benchmarks/patches.py).

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.geometry.rotations import rotation_matrices
from doap.images.extraction import CHUNK_SIZE, Pyramid, axis_lengths, to_image_points
from doap.images.full_precision import without_autocast
from doap.types import Frames, Grey


@dataclass(frozen=True)
class Sampling:
    """Sampling of the gradients around a frame, in units of its scale."""

    window: float  # sigma of the Gaussian window over which they are summed, truncated at two sigmas
    smoothing: float  # sigma of the derivatives
    spacing: float  # between samples


# Selected with benchmarks/detectors.py --settings.
SHAPE = Sampling(window=4.0, smoothing=0.5, spacing=0.75)
ORIENTATION = Sampling(window=2.0, smoothing=1.4, spacing=0.75)
MAX_AXIS_RATIO = 6.0
MAX_ITERATIONS = 12
ISOTROPIC_RATIO = 1.1  # axis ratio of the second moments at which the iteration has converged
BINS = 36
PEAK_SHARE = 0.8  # of the largest peak: smaller ones are no orientations, as in SIFT
FLAT = 0.0125  # largest peak of a flat patch: rounding gives up to 4e-4, one pixel of one grey level 0.05


def affine_shape(image: Grey | Pyramid, frames: Frames) -> Frames:
    """Adapt the shape of frames until their gradients are isotropic (Baumberg's iteration).

    A ← A M^(-1/2) with M normalised to determinant 1 is repeated until the second moment matrix M of the gradients, in
    the frame's own coordinates, is isotropic. Frames of one surface seen at different slants then differ by a rotation
    only.

    Args:
        image: The image or its pyramid.
        frames: (N, 2, 3).

    Returns:
        (K, 2, 3), K <= N, in the input's order and of the same scale. Frames whose axis ratio exceeds 6 or that do not
        converge are dropped; they lie on edges.
    """
    pyramid = image if isinstance(image, Pyramid) else Pyramid(image)
    shaped, converged = adapt_shapes(pyramid, frames)
    return np.asarray(shaped[converged])


@without_autocast
def adapt_shapes(pyramid: Pyramid, frames: Frames) -> tuple[Frames, NDArray[np.bool_]]:
    """Adapt the shape of frames; return all of them, (N, 2, 3), and which have converged, (N,)."""
    shaped = torch.from_numpy(frames).to(pyramid.device, copy=True)
    active = torch.arange(len(frames), device=shaped.device)
    converged = torch.zeros(len(frames), dtype=torch.bool, device=shaped.device)
    limit = MAX_AXIS_RATIO + 1 / MAX_AXIS_RATIO
    for _ in range(MAX_ITERATIONS):
        if not len(active):
            break
        correction, ratio = _inverse_root(_moments(pyramid, shaped[active]))
        shape = shaped[active, :, :2] @ correction
        shaped[active, :, :2] = shape
        converged[active] = ratio < ISOTROPIC_RATIO
        elongation = shape.square().sum((1, 2)) / shape.det().abs()  # r + 1 / r of the axis ratio r
        converged[active[elongation > limit]] = False
        active = active[(ratio >= ISOTROPIC_RATIO) & (elongation <= limit)]
    return shaped.cpu().numpy(), converged.cpu().numpy()


@without_autocast
def orient(image: Grey | Pyramid, frames: Frames) -> Frames:
    """Rotate frames so that the x axis points along the dominant gradient, in the frame's own coordinates.

    As in SIFT, gradients under a Gaussian window of 2 scales vote into 36 bins, the histogram is smoothed, and its
    largest peak is refined by a parabola. Each frame gets one orientation.

    Args:
        image: The image or its pyramid.
        frames: (N, 2, 3), of any orientation.

    Returns:
        (N, 2, 3) frames of the same ellipses.
    """
    pyramid = image if isinstance(image, Pyramid) else Pyramid(image)
    oriented = torch.from_numpy(frames).to(pyramid.device)
    histograms = _direction_histograms(pyramid, oriented)
    rows = torch.arange(len(frames), device=oriented.device)
    return _turn(oriented, _peak_angles(histograms, rows, histograms.argmax(1))).cpu().numpy()


@without_autocast
def orient_all(image: Grey | Pyramid, frames: Frames) -> tuple[Frames, NDArray[np.int64]]:
    """Rotate frames as `orient` does, once for every peak of at least 0.8 of the largest, as in SIFT.

    Args:
        image: The image or its pyramid.
        frames: (N, 2, 3), of any orientation.

    Returns:
        (M, 2, 3) frames, M >= N, and for each the index of the given frame with the same ellipse, (M,), ascending.
    """
    pyramid = image if isinstance(image, Pyramid) else Pyramid(image)
    given = torch.from_numpy(frames).to(pyramid.device)
    histograms = _direction_histograms(pyramid, given)
    is_peak = (histograms > histograms.roll(1, 1)) & (histograms >= histograms.roll(-1, 1))
    is_peak &= histograms >= PEAK_SHARE * histograms.amax(1, keepdim=True).clamp(min=FLAT)
    is_flat = ~is_peak.any(1)  # a flat patch has one orientation, too
    is_peak[is_flat, histograms[is_flat].argmax(1)] = True
    rows, bins = is_peak.nonzero().unbind(1)
    return _turn(given[rows], _peak_angles(histograms, rows, bins)).cpu().numpy(), rows.cpu().numpy()


def _gradients(pyramid: Pyramid, frames: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor, Tensor]:
    """Compute derivatives in the coordinates of (N, 2, 3) frames.

    Returns:
        (N, m, m) derivatives along x and along y, and the (m, m) Gaussian window.
    """
    radius = math.ceil(2 * sampling.window / sampling.spacing)
    reach = math.ceil(2.5 * sampling.smoothing / sampling.spacing)
    inner = _steps(radius, sampling.spacing, frames.device)
    outer = _steps(radius + reach, sampling.spacing, frames.device)
    y, x = torch.meshgrid(outer, outer, indexing="ij")
    points = to_image_points(torch.stack([x, y], -1), frames, 1.0)
    # The shorter axis selects the level: that of the longer one would blur the variation along the shorter.
    values = pyramid.sample(points, sampling.spacing * axis_lengths(frames[:, :, :2])[1])
    offsets = outer - inner[:, None]
    blur = torch.exp(-0.5 * (offsets / sampling.smoothing) ** 2)
    blur[offsets.abs() > (reach + 0.5) * sampling.spacing] = 0  # the same for all samples, so that derivatives sum to 0
    blur /= blur.sum(1, keepdim=True)
    derive = blur * offsets / sampling.smoothing**2
    profile = torch.exp(-0.5 * (inner / sampling.window) ** 2)
    return blur @ values @ derive.T, derive @ values @ blur.T, profile[:, None] * profile


def _steps(radius: int, spacing: float, device: torch.device) -> Tensor:
    return spacing * torch.arange(-radius, radius + 1, device=device, dtype=torch.float32)


def _moments(pyramid: Pyramid, frames: Tensor) -> Tensor:
    """Compute the second moments xx, xy, yy of the gradients, (N, 3)."""
    chunks = []
    for start in range(0, len(frames), CHUNK_SIZE):
        x, y, weights = _gradients(pyramid, frames[start : start + CHUNK_SIZE], SHAPE)
        chunks.append(torch.stack([(weights * product).sum((1, 2)) for product in (x * x, x * y, y * y)], 1))
    return torch.cat(chunks)


def _inverse_root(moments: Tensor) -> tuple[Tensor, Tensor]:
    """Compute M^(-1/2) with determinant 1, (N, 2, 2), and the ratio of its axes, (N,)."""
    xx, xy, yy = moments.double().unbind(1)
    trace = xx + yy
    # For a flat patch or a straight edge, the smallest eigenvalue is set to 1e-4 of the largest.
    det = torch.maximum(xx * yy - xy * xy, 1e-4 * trace**2).clamp(min=1e-12)
    xx, xy, yy, trace = (v / det.sqrt() for v in (xx, xy, yy, trace))
    # For a symmetric M of determinant 1, √M = (M + I) / √(trace + 2), and the inverse swaps the diagonal.
    root = (trace + 2).sqrt()
    inverse = torch.stack([torch.stack([yy + 1, -xy], 1), torch.stack([-xy, xx + 1], 1)], 1) / root[:, None, None]
    half = (trace / 2).clamp(min=1)
    return inverse.float(), (half + (half**2 - 1).sqrt()).sqrt().float()


def _direction_histograms(pyramid: Pyramid, frames: Tensor) -> Tensor:
    """Compute the smoothed histograms of gradient directions in the coordinates of (N, 2, 3) frames, (N, BINS)."""
    histograms = torch.zeros(len(frames), BINS, dtype=torch.float32, device=frames.device)
    for start in range(0, len(frames), CHUNK_SIZE):
        rows = slice(start, start + CHUNK_SIZE)
        x, y, weights = _gradients(pyramid, frames[rows], ORIENTATION)
        position = torch.atan2(y, x).flatten(1) / (2 * math.pi) * BINS
        votes = (torch.hypot(x, y) * weights).flatten(1)
        low = position.floor()
        weight = position - low
        histograms[rows].scatter_add_(1, low.long() % BINS, votes * (1 - weight))
        histograms[rows].scatter_add_(1, (low.long() + 1) % BINS, votes * weight)
    taps = (1, 4, 6, 4, 1)
    return sum((w * histograms.roll(k - 2, 1) for k, w in enumerate(taps)), start=torch.zeros_like(histograms))


def _peak_angles(histograms: Tensor, rows: Tensor, bins: Tensor) -> Tensor:
    """Return the angles of (M,) peaks, given by row and bin of (N, BINS) histograms and refined by parabolas, (M,)."""
    before, centre, after = (histograms[rows, (bins + k) % BINS] for k in (-1, 0, 1))
    curvature = (2 * centre - before - after).clamp(min=1e-12)
    return (bins + (after - before) / (2 * curvature)) * (2 * math.pi / BINS)


def _turn(frames: Tensor, angles: Tensor) -> Tensor:
    """Return a copy of (M, 2, 3) frames rotated by (M,) angles in their own coordinates."""
    return torch.cat([frames[:, :, :2] @ rotation_matrices(angles.cos(), angles.sin()), frames[:, :, 2:]], 2)
