"""The shape and turn of frames, from the gradients around them: affine adaptation and dominant orientation.

Both read each frame's neighbourhood in the frame's own coordinates, so that what they find moves with the picture.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from doap.images.extraction import FRAMES_AT_ONCE, Pyramid, axis_lengths, place_points
from doap.types import Frames, Grey


@dataclass(frozen=True)
class Sampling:
    """How gradients around a frame are read, in units of its scale."""

    window: float  # sigma of the Gaussian under which they are summed, cut at twice that
    smoothing: float  # sigma of the derivatives
    spacing: float  # between samples


# Chosen by benchmarks/detectors.py --settings.
SHAPE = Sampling(window=4.0, smoothing=0.5, spacing=0.75)
TURN = Sampling(window=2.0, smoothing=1.4, spacing=0.75)
MAX_AXIS_RATIO = 6.0
ITERATIONS = 12  # at most
ISOTROPIC = 1.1  # ratio of the axes of what is left to undo at which an iteration has ended
BINS = 36


def affine_shape(image: Grey | Pyramid, frames: Frames) -> Frames:
    """Stretch frames until the gradients inside are alike in all directions (Baumberg's iteration).

    The second moment matrix M of the gradients in a frame's own coordinates is undone by A ← A M^(-1/2), with
    the determinant kept, until M is isotropic. Then frames of the same surface under different slants become
    the same but for a turn.

    Args:
        image: the picture or its pyramid.
        frames: (N, 2, 3).

    Returns:
        (K, 2, 3), K <= N, in the same order and of the same scale: without those whose axes grew apart by more
        than 6 or that did not settle, which lie on edges.
    """
    pyramid = image if isinstance(image, Pyramid) else Pyramid(image)
    shaped = torch.from_numpy(frames).to(pyramid.levels[0].device, copy=True)
    moving = torch.arange(len(frames), device=shaped.device)
    settled = torch.zeros(len(frames), dtype=torch.bool, device=shaped.device)
    limit = MAX_AXIS_RATIO + 1 / MAX_AXIS_RATIO
    for _ in range(ITERATIONS):
        if not len(moving):
            break
        undo, ratio = _undo_moments(_moments(pyramid, shaped[moving]))
        shape = shaped[moving, :, :2] @ undo
        shaped[moving, :, :2] = shape
        settled[moving] = ratio < ISOTROPIC
        apart = shape.square().sum((1, 2)) / shape.det().abs()  # r + 1 / r of the axes' ratio r
        settled[moving[apart > limit]] = False
        moving = moving[(ratio >= ISOTROPIC) & (apart <= limit)]
    return np.ascontiguousarray(shaped[settled].cpu().numpy())


def orient(image: Grey | Pyramid, frames: Frames) -> Frames:
    """Turn frames so that the x axis lies along the dominant gradient, in the frame's own coordinates.

    As in SIFT: gradients under a Gaussian of 2 scales vote into 36 bins, the histogram is smoothed, its largest
    peak refined by a parabola. Each frame gets one orientation.

    Args:
        image: the picture or its pyramid.
        frames: (N, 2, 3); how they are turned does not matter.

    Returns:
        (N, 2, 3), each turned in its own coordinates: the ellipse stays.
    """
    pyramid = image if isinstance(image, Pyramid) else Pyramid(image)
    turned = torch.from_numpy(frames).to(pyramid.levels[0].device, copy=True)
    for start in range(0, len(frames), FRAMES_AT_ONCE):
        chunk = turned[start : start + FRAMES_AT_ONCE]
        x, y, weights = _gradients(pyramid, chunk, TURN)
        angle = _dominant(torch.atan2(y, x), torch.hypot(x, y) * weights)
        cosine, sine = angle.cos(), angle.sin()
        turn = torch.stack([torch.stack([cosine, -sine], 1), torch.stack([sine, cosine], 1)], 1)
        chunk[:, :, :2] = chunk[:, :, :2] @ turn
    return turned.cpu().numpy()


def _gradients(pyramid: Pyramid, frames: Tensor, how: Sampling) -> tuple[Tensor, Tensor, Tensor]:
    """Derivatives in the coordinates of (N, 2, 3) frames, and where they count.

    Returns:
        (N, m, m) along x and along y, and the (m, m) Gaussian window.
    """
    reach = math.ceil(2 * how.window / how.spacing)
    inner = _steps(reach, how.spacing, frames.device)
    outer = _steps(reach + math.ceil(2.5 * how.smoothing / how.spacing), how.spacing, frames.device)
    y, x = torch.meshgrid(outer, outer, indexing="ij")
    points = place_points(torch.stack([x, y], -1), frames, 1.0)
    # The level follows the shorter axis: one chosen for the longer would have blurred what varies along the shorter.
    values = pyramid.sample(points, how.spacing * axis_lengths(frames[:, :, :2])[1])
    offsets = outer - inner[:, None]
    blur = torch.exp(-0.5 * (offsets / how.smoothing) ** 2)
    blur[blur < 1e-6] = 0  # numbers too small for normal floats would make the products ten times slower
    blur /= blur.sum(1, keepdim=True)
    derive = blur * offsets / how.smoothing**2
    profile = torch.exp(-0.5 * (inner / how.window) ** 2)
    return blur @ values @ derive.T, derive @ values @ blur.T, profile[:, None] * profile


def _steps(reach: int, spacing: float, device: torch.device) -> Tensor:
    return spacing * torch.arange(-reach, reach + 1, device=device, dtype=torch.float32)


def _moments(pyramid: Pyramid, frames: Tensor) -> Tensor:
    """Second moments of the gradients, (N, 3): xx, xy, yy."""
    parts = []
    for start in range(0, len(frames), FRAMES_AT_ONCE):
        x, y, weights = _gradients(pyramid, frames[start : start + FRAMES_AT_ONCE], SHAPE)
        parts.append(torch.stack([(weights * product).sum((1, 2)) for product in (x * x, x * y, y * y)], 1))
    return torch.cat(parts)


def _undo_moments(moments: Tensor) -> tuple[Tensor, Tensor]:
    """M^(-1/2) of determinant 1, (N, 2, 2), and the ratio of its axes, (N,)."""
    xx, xy, yy = moments.double().unbind(1)
    trace = xx + yy
    # A flat patch or a straight edge: the smallest eigenvalue is taken as 1e-4 of the largest.
    det = torch.maximum(xx * yy - xy * xy, 1e-4 * trace**2).clamp(min=1e-12)
    xx, xy, yy, trace = (v / det.sqrt() for v in (xx, xy, yy, trace))
    # For a symmetric M of determinant 1, √M = (M + I) / √(trace + 2), and inverting swaps the diagonal.
    root = (trace + 2).sqrt()
    undo = torch.stack([torch.stack([yy + 1, -xy], 1), torch.stack([-xy, xx + 1], 1)], 1) / root[:, None, None]
    half = (trace / 2).clamp(min=1)
    return undo.float(), (half + (half**2 - 1).sqrt()).sqrt().float()


def _dominant(angles: Tensor, votes: Tensor) -> Tensor:
    """The angle with most votes, (N,), of (N, m, m) angles and votes."""
    place = angles.flatten(1) / (2 * math.pi) * BINS
    low = place.floor()
    share = place - low
    histogram = votes.new_zeros(len(votes), BINS)
    flat = votes.flatten(1)
    histogram.scatter_add_(1, low.long() % BINS, flat * (1 - share))
    histogram.scatter_add_(1, (low.long() + 1) % BINS, flat * share)
    taps = (1, 4, 6, 4, 1)
    smooth = sum((w * histogram.roll(k - 2, 1) for k, w in enumerate(taps)), start=torch.zeros_like(histogram))
    peak = smooth.argmax(1, keepdim=True)
    before, here, after = (smooth.gather(1, (peak + k) % BINS)[:, 0] for k in (-1, 0, 1))
    bend = (2 * here - before - after).clamp(min=1e-12)
    return (peak[:, 0] + (after - before) / (2 * bend)) * (2 * math.pi / BINS)
