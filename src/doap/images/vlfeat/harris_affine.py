"""Harris-Affine frames as VLFeat's `vl_covdet` makes them: Harris-Laplace corners with affine shape, upright.

The equivalent in MATLAB is `vl_covdet(image, 'Method', 'HarrisLaplace', 'EstimateAffineShape', true)`.
`benchmarks/vlfeat.py` compares the frames with those of the library.
"""

import numpy as np
import torch
from torch import Tensor

from doap.images.frames import Detections, Filter, make_upright
from doap.images.vlfeat.harris_laplace import Corners, find_harris_laplace
from doap.images.vlfeat.scale_space import MIN_OCTAVE_SIDE, ScaleSpace
from doap.types import Frames, Grey

BOUNDARY = 2.0  # a corner is dropped if a square of this half side, in sigmas, leaves the image
MAX_AXIS_RATIO = 5.0
MAX_ITERATIONS = 15
ISOTROPIC_RATIO = 1.001  # ratio of the eigenvalues of the second moments at which the iteration has converged
RADIUS = 20  # samples on either side of the centre
EXTENT = 9.0  # of the samples, in units of the smaller axis
WINDOW = 3.0  # sigma of the Gaussian window, in units of the smaller axis
SMOOTHING = 1.0  # requested blur, in units of the smaller axis
CHUNK_SIZE = 256  # frames; larger chunks do not fit into the cache


def find_vlfeat_harris_affine(image: Grey, limit: int | None, condition: Filter) -> Detections:
    """Detect the Harris-Affine frames of VLFeat, strongest first, upright.

    Args:
        image: (H, W) uint8.
        limit: Maximum number of frames; None for all, as `vl_covdet` returns.
        condition: Condition that frames must meet.
    """
    if min(image.shape) < MIN_OCTAVE_SIDE:
        return Detections.none()
    space = ScaleSpace(image)
    corners = find_harris_laplace(space)
    strengths = np.abs(corners.responses)
    corners = corners[_inside(corners, image.shape) & condition.keeps(corners.centres, strengths)]
    corners = corners[np.argsort(-np.abs(corners.responses), kind="stable")[:limit]]
    frames = np.concatenate([corners.sigmas[:, None, None] * np.eye(2), corners.centres[:, :, None]], 2)
    responses = np.abs(corners.responses).astype(np.float32)
    return Detections(make_upright(adapt_shape(space, frames.astype(np.float32))), responses)


def adapt_shape(space: ScaleSpace, frames: Frames) -> Frames:
    """Adapt the shape of frames until their gradients are isotropic; the smaller axis keeps its length.

    All frames are retained: one whose axis ratio would exceed 5 keeps its last shape, one without gradients its first.

    Args:
        space: Scale space of the image.
        frames: (N, 2, 3).

    Returns:
        (N, 2, 3), their axes along the principal axes of the ellipse.
    """
    adapted = torch.from_numpy(frames).clone()
    for start in range(0, len(frames), CHUNK_SIZE):
        chunk = adapted[start : start + CHUNK_SIZE]
        chunk[:, :, :2] = _adapt(space, chunk[:, :, :2].double(), chunk[:, :, 2].clone()).float()
    return adapted.numpy()


def _adapt(space: ScaleSpace, shapes: Tensor, centres: Tensor) -> Tensor:
    """Run the iteration on (N, 2, 2) shapes at (N, 2) centres."""
    result = shapes.clone()
    smallest = torch.linalg.matrix_norm(shapes, ord=-2)
    active = torch.arange(len(shapes))
    for iteration in range(MAX_ITERATIONS):
        axes, lengths, _ = torch.linalg.svd(shapes)
        within = lengths[:, 0] <= MAX_AXIS_RATIO * lengths[:, 1]
        active, axes, lengths = active[within], axes[within], lengths[within]
        lengths = lengths * (smallest[active] / lengths[:, 1])[:, None]
        shapes = axes * lengths[:, None]
        result[active] = shapes
        if iteration == MAX_ITERATIONS - 1 or not len(active):
            break
        patches, _ = space.sample(shapes.float(), centres[active], RADIUS, EXTENT, SMOOTHING)
        moments = _moments(patches)
        values, vectors = torch.linalg.eigh(moments)
        flat = (moments.diagonal(dim1=1, dim2=2) == 0).any(1)
        result[active[flat]] = smallest[active[flat], None, None] * torch.eye(2, dtype=result.dtype)
        anisotropic = ~flat & (values[:, 1] >= ISOTROPIC_RATIO * values[:, 0])
        active = active[anisotropic]
        roots = values[anisotropic].clamp(min=1e-30).sqrt()
        shapes = shapes[anisotropic] @ vectors[anisotropic] / roots[:, None]
    result[:, :, 0] *= torch.linalg.det(result).sign()[:, None]
    return result


def _moments(patches: Tensor) -> Tensor:
    """Compute the second moments of the gradients of (N, m, m) patches under a Gaussian window, (N, 2, 2) float64."""
    # VLFeat's window has 2 radius + 1 steps over the extent, the samples 2 radius.
    steps = torch.arange(-RADIUS, RADIUS + 1, dtype=torch.float32) * (2 * EXTENT / (2 * RADIUS + 1)) / WINDOW
    profile = torch.exp(-0.5 * steps**2)
    window = profile[:, None] * profile
    y, x = torch.gradient(patches, dim=(1, 2))
    xx, xy, yy = ((a * b).flatten(1) @ window.flatten() for a, b in ((x, x), (x, y), (y, y)))
    return torch.stack([torch.stack([xx, xy], 1), torch.stack([xy, yy], 1)], 1).double()


def _inside(corners: Corners, shape: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which corners are at least two sigmas away from the border of the image, (N,)."""
    margin = BOUNDARY * corners.sigmas[:, None]
    limits = np.array([shape[1] - 1, shape[0] - 1])
    return np.asarray(((corners.centres - margin >= 0) & (corners.centres + margin <= limits)).all(1))
