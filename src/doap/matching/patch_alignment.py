"""Alignment of patches of the same point to fractions of a pixel.

Two patches a and b, normalised to zero mean and unit variance, are aligned by the shift d and matrix M that minimise

    sum over x of w(x) (a(x - (d + M x) / 2) - b(x + (d + M x) / 2))²  +  DAMPING · |M|²

with x relative to the centre, in units of the window's deviation, and a Gaussian window w. M takes up what the frames
of the patches differ in scale, orientation and shape, which would bias d. Gauss-Newton steps use the mean of both
gradients (Benhimane and Malis, 2004), so that the order of the patches changes nothing but signs.
"""

from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

MARGIN = 4  # pixels at each side of a patch outside of the window
MAX_SHIFT = 2.0 * MARGIN  # pixels along each axis: half of it is within the margin
STEPS = 8
MAX_STEP = 1.0  # pixels
MAX_LAST_STEP = 0.1  # pixels: of a minimum that has been reached
DAMPING = 0.02
MIN_DEVIATION = 0.1  # grey values: less is rounding
CHUNK_SIZE = 512  # patches, whose windows fit a cache


@dataclass(frozen=True)
class Alignment:
    """Shifts of patches.

    Attributes:
        shifts: (N, 2) d = (x, y) in pixels: what is in the centre of the first patch is there in the second.
        similarities: (N,) correlation of the windows of the aligned patches, -1 to 1.
        converged: (N,) bool, whether a minimum was reached.
    """

    shifts: Tensor
    similarities: Tensor
    converged: Tensor


def align_patches(first: Tensor, second: Tensor) -> Alignment:
    """Align patches pairwise, on the CPU.

    Args:
        first: (N, S, S) patches on the CPU, of any dtype, S at least 16.
        second: (N, S, S) patches of the same points, on the CPU, with about the same scale and orientation.

    Returns:
        Shifts in float32, on the CPU.
    """
    starts = range(0, max(1, len(first)), CHUNK_SIZE)
    chunks = [_align(first[start:][:CHUNK_SIZE].float(), second[start:][:CHUNK_SIZE].float()) for start in starts]
    return Alignment(*(torch.cat(values) for values in zip(*chunks, strict=True)))


@torch.no_grad()
def _align(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    window = _Window(first.shape[1])
    # Columns: d, and the columns of M, (N, 2, 3), in pixels.
    warps = first.new_zeros(len(first), 2, 3)
    last = first.new_zeros(len(first))
    for _ in range(STEPS):
        a, a_x, a_y = window.normalise(first, -warps / 2)
        b, b_x, b_y = window.normalise(second, warps / 2)
        step = window.solve((a_x + b_x) / 2, (a_y + b_y) / 2, a - b)
        last = step[:, :, 0].norm(dim=1)
        warps = warps + step * (MAX_STEP / last.clamp(min=MAX_STEP))[:, None, None]
        warps = warps.clamp(-MAX_SHIFT, MAX_SHIFT)
    a, b = (window.normalise(patches, sign * warps / 2)[0] for patches, sign in ((first, -1), (second, 1)))
    return warps[:, :, 0], (a * b * window.weights).sum(1), last < MAX_LAST_STEP


class _Window:
    """The pixels of a patch that are compared, (P,) with P = side · side.

    Args:
        size: Side of the patches.

    Attributes:
        weights: (P,) w, with sum 1 and a standard deviation of a quarter of the side.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.side = size - 2 * MARGIN
        self.weights, self.basis = _weights_and_basis(self.side)

    def normalise(self, patches: Tensor, warps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the windows of warped patches with zero mean and unit variance, and their gradients, (N, P) each."""
        values = self._sample(patches, warps)
        inner = values[:, 1:-1, 1:-1]
        x, y = values[:, 1:-1, 2:] - values[:, 1:-1, :-2], values[:, 2:, 1:-1] - values[:, :-2, 1:-1]
        centred, x, y = (
            maps - (maps * self.weights).sum(1, keepdim=True)
            for maps in (inner.flatten(1), x.flatten(1) / 2, y.flatten(1) / 2)
        )
        deviation = (centred.square() * self.weights).sum(1, keepdim=True).sqrt().clamp(min=MIN_DEVIATION)
        return centred / deviation, x / deviation, y / deviation

    def solve(self, x: Tensor, y: Tensor, difference: Tensor) -> Tensor:
        """Return the change of warps, (N, 2, 3), that minimises the damped sum for gradients along x and y."""
        slopes = torch.stack([x, y], 1)[:, :, None] * self.basis  # (N, 2, 3, P)
        slopes = slopes.flatten(1, 2)
        weighted = slopes * self.weights
        damping = torch.tensor([1e-6, DAMPING, DAMPING]).repeat(2).diag()
        normal = weighted @ slopes.mT + damping
        solution: Tensor = torch.linalg.solve(normal, weighted @ difference[:, :, None])
        return solution.view(-1, 2, 3)

    def _sample(self, patches: Tensor, warps: Tensor) -> Tensor:
        """Return the windows, with one pixel more at each side, of patches warped by x + warps · (1, x)."""
        side = self.side + 2
        deviation = self.side / 4
        scale = 2 / (self.size - 1)  # from pixels relative to the centre to -1..1
        theta = torch.cat([torch.eye(2).expand(len(warps), -1, -1) + warps[:, :, 1:] / deviation, warps[:, :, :1]], 2)
        coordinates = (torch.arange(side) - (side - 1) / 2).to(patches)
        grid_y, grid_x = torch.meshgrid(coordinates, coordinates, indexing="ij")
        points = torch.stack([grid_x, grid_y, torch.ones_like(grid_x)]).flatten(1)
        grid = (theta @ points).mT.reshape(-1, side, side, 2) * scale
        return F.grid_sample(patches[:, None], grid, padding_mode="border", align_corners=True)[:, 0]


@cache
def _weights_and_basis(side: int) -> tuple[Tensor, Tensor]:
    """Return the weights of a window, (P,), and (1, x, y) in units of its deviation, (3, P)."""
    coordinates = (torch.arange(side) - (side - 1) / 2) / (side / 4)
    y, x = torch.meshgrid(coordinates, coordinates, indexing="ij")
    weights = torch.exp(-(x.square() + y.square()) / 2).flatten()
    return weights / weights.sum(), torch.stack([torch.ones_like(x), x, y]).flatten(1)
