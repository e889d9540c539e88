"""Histograms of oriented gradients in the UoCTTI variant, VLFeat's default: 31 values per cell.

Implemented here because scikit-image and OpenCV implement only the variant of Dalal and Triggs.

Gradients are central differences of the pixels that have both neighbours. Each gradient votes with its length for
the nearest of 18 directed orientations k π / 9, measured clockwise from the x axis, and bilinearly for the four
nearest cells. With u = h_k + h_{k+9}, the undirected histogram of a cell, and the four blocks of 2 x 2 cells that
contain the cell, replicated at the border,

    f_b = 1 / √(Σ_{cell ∈ b} |u|² + 10⁻⁴)                       for each block b
    ½ Σ_b min(f_b h_k, 0.2), k = 0..17,   ½ Σ_b min(f_b u_k, 0.2), k = 0..8      27 orientations
    Σ_k min(f_b u_k, 0.2) / √18                                 4 of texture: upper left, upper right, lower …
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

ORIENTATIONS = 9
CELL = 8


def hog(patches: Tensor) -> Tensor:
    """Compute the HOG descriptor of every cell of 8 x 8 pixels of each patch.

    Args:
        patches: (N, S, S) floats in [0, 1], S a multiple of 8. The 10⁻⁴ in the norm of a block assumes this range;
            smaller values would be suppressed.

    Returns:
        (N, S / 8, S / 8, 31), 0 for a flat patch.
    """
    histograms = _directed(patches)
    undirected = histograms[:, :ORIENTATIONS] + histograms[:, ORIENTATIONS:]
    energy = F.pad(undirected.square().sum(1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    blocks = 1 / (F.avg_pool2d(energy, 2, 1) * 4 + 1e-4).sqrt()  # (N, 1, cells + 1, cells + 1)
    features = torch.cat((histograms, undirected), 1)
    truncated = [
        (features * factor).clamp(max=0.2)
        for factor in (blocks[..., :-1, :-1], blocks[..., :-1, 1:], blocks[..., 1:, :-1], blocks[..., 1:, 1:])
    ]
    texture = [values[:, 2 * ORIENTATIONS :].sum(1, keepdim=True) / math.sqrt(18) for values in truncated]
    orientations = (truncated[0] + truncated[1] + truncated[2] + truncated[3]) / 2
    return torch.cat((orientations, *texture), 1).permute(0, 2, 3, 1)


def _directed(patches: Tensor) -> Tensor:
    """Return the histograms of directed orientations of (N, S, S) patches, (N, 18, cells, cells)."""
    dx = patches[:, 1:-1, 2:] - patches[:, 1:-1, :-2]
    dy = patches[:, 2:, 1:-1] - patches[:, :-2, 1:-1]
    length = (dx.square() + dy.square()).sqrt()
    orientation = _nearest_orientation(dx, dy)
    weights = _cell_weights(patches)
    votes = [weights @ torch.where(orientation == k, length, 0) @ weights.T for k in range(2 * ORIENTATIONS)]
    return torch.stack(votes, 1)


def _nearest_orientation(dx: Tensor, dy: Tensor) -> Tensor:
    """Return the nearest of 18 orientations of each gradient; a vertical one, a tie, goes to 80 or 260 degrees."""
    turns = torch.atan2(dy, dx) * (ORIENTATIONS / math.pi)
    # The offset keeps rounding from deciding the ties of vertical gradients, which are frequent.
    return (turns - (0.5 + 2e-6)).ceil_().remainder_(2 * ORIENTATIONS).to(torch.uint8)


def _cell_weights(patches: Tensor) -> Tensor:
    """Return the weights (cells, S - 2) of each inner pixel of a row in each cell, linear in their distance."""
    size = patches.shape[-1]
    position = (torch.arange(1, size - 1, dtype=patches.dtype, device=patches.device) + 0.5) / CELL - 0.5
    cells = torch.arange(size // CELL, dtype=patches.dtype, device=patches.device)
    return (1 - (position - cells[:, None]).abs()).clamp(min=0)
