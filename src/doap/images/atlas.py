"""The pyramids of many pictures in device memory, to cut patches from all of them in one go.

`extract.Pyramid` holds one picture; a batch of patches comes from hundreds. Here the levels of all pictures
lie one after another in one uint8 tensor, and every sample finds its picture and level by arithmetic. Plain
torch, the same on every device, and equal to cutting picture by picture up to one grey level: the levels
are rounded to bytes.
"""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from doap.images.extraction import Pyramid, to_bytes
from doap.types import Grey


class Atlas:
    """Pictures and their halvings as bytes: about 4/3 byte a pixel.

    Args:
        images: (H, W) uint8 each.
        device: where to keep them and to cut.
    """

    def __init__(self, images: Iterable[Grey], device: str | torch.device = "cpu") -> None:
        parts: list[Tensor] = []
        shapes: list[list[tuple[int, int]]] = []
        for image in images:
            levels = [_at_least_two(level) for level in Pyramid(image, device).levels]
            parts += [to_bytes(level).flatten() for level in levels]
            shapes.append([(level.shape[2], level.shape[3]) for level in levels])
        depth = max(map(len, shapes))
        # A picture with fewer halvings than another repeats its last one in the tables; no sample asks for it.
        table = torch.tensor([[*levels, *[levels[-1]] * (depth - len(levels))] for levels in shapes])
        sizes = torch.tensor([h * w for levels in shapes for h, w in levels])
        starts = torch.split(sizes.cumsum(0) - sizes, [len(levels) for levels in shapes])
        self._pixels = torch.cat(parts)
        self._start = torch.stack([torch.cat([s, s[-1:].expand(depth - len(s))]) for s in starts]).to(device)
        self._height, self._width = (table[:, :, axis].contiguous().to(device) for axis in (0, 1))
        self._last = torch.tensor([len(levels) - 1 for levels in shapes], device=device)

    def __len__(self) -> int:
        return len(self._last)

    def cut(
        self, frames: Tensor, grid: tuple[Tensor, Tensor], extent: float, spacing: Tensor, pictures: Tensor
    ) -> Tensor:
        """Read pictures at the grids of frames, borders replicated.

        Args:
            frames: (N, 2, 3).
            grid: positions in the patch, across and down, [-1, 1]: two tensors (N, h, w) or (h, w).
            extent: half the side of the patch in units of the frame's scale.
            spacing: (N,) distance in picture pixels between patch pixels: decides the level.
            pictures: (N,) integers, which picture to read.

        Returns:
            (N, h, w) float32 in 0..255.
        """
        level = torch.minimum(spacing.log2().floor().clamp(min=0).long(), self._last[pictures])
        width, height = (_each(side[pictures, level]) for side in (self._width, self._height))
        # Pixel centres: x of the picture lies at (x + 0.5) / 2^l - 0.5 of level l.
        shrink = torch.exp2(-level.float())
        shape = (extent * shrink)[:, None, None] * frames[:, :, :2]
        centre = (frames[:, :, 2] + 0.5) * shrink[:, None] - 0.5
        x, y = (_position(centre[:, axis], shape[:, axis], grid, side) for axis, side in ((0, width), (1, height)))
        corner = y.long().mul_(width).add_(x.long()).add_(_each(self._start[pictures, level]))
        x, y = x.frac_(), y.frac_()
        upper = self._between(corner, x)
        lower = self._between(corner.add_(width), x)
        return upper.lerp_(lower, y)

    def _between(self, corner: Tensor, share: Tensor) -> Tensor:
        """The value between the pixel at `corner` and the one to its right."""
        return self._pixels[corner].float().lerp_(self._pixels[1:][corner].float(), share)


def _position(centre: Tensor, row: Tensor, grid: tuple[Tensor, Tensor], size: Tensor) -> Tensor:
    """Where the grid lies along one axis of the level, clamped so that a pixel and the next one exist: (N, h, w)."""
    across, down = grid
    position = torch.addcmul(torch.addcmul(_each(centre), _each(row[:, 0]), across), _each(row[:, 1]), down)
    # Just short of the last pixel: what is lost is a thousandth of the step between two pixels.
    return torch.clamp(position, torch.zeros_like(size, dtype=position.dtype), size - 1 - 1e-3)


def _each(values: Tensor) -> Tensor:
    """One value for each patch, (N, 1, 1)."""
    return values[:, None, None]


def _at_least_two(level: Tensor) -> Tensor:
    """A level with at least two rows and columns, so that every pixel has a next one."""
    height, width = level.shape[2:]
    return F.pad(level, (0, max(0, 2 - width), 0, max(0, 2 - height)), mode="replicate")
