"""The pyramids of many pictures in device memory, to cut patches from all of them in one go.

`extract.Pyramid` holds one picture; a batch of patches comes from hundreds. Here the levels of all pictures
lie one after another in one uint8 tensor, and every sample finds its picture and level by arithmetic. Plain
torch, the same on every device, and equal to cutting picture by picture up to one grey level: the levels
are rounded to bytes.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from doap.photos.extract import Pyramid, to_bytes
from doap.photos.images import Grey


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
            levels = Pyramid(image, device).levels
            parts += [to_bytes(level).flatten() for level in levels]
            shapes.append([(level.shape[2], level.shape[3]) for level in levels])
        depth = max(map(len, shapes))
        # A picture with fewer halvings than another repeats its last one in the tables; no sample asks for it.
        table = torch.tensor([[*levels, *[levels[-1]] * (depth - len(levels))] for levels in shapes])
        sizes = torch.tensor([h * w for levels in shapes for h, w in levels])
        starts = torch.split(sizes.cumsum(0) - sizes, [len(levels) for levels in shapes])
        self.pixels = torch.cat(parts)
        self._start = torch.stack([torch.cat([s, s[-1:].expand(depth - len(s))]) for s in starts]).to(device)
        self._height, self._width = (table[:, :, axis].contiguous().to(device) for axis in (0, 1))
        self._last = torch.tensor([len(levels) - 1 for levels in shapes], device=device)

    def __len__(self) -> int:
        return len(self._last)

    def sample(self, points: Tensor, spacing: Tensor, pictures: Tensor) -> Tensor:
        """Read pictures at points, borders replicated.

        Args:
            points: (N, h, w, 2) float, (x, y) in pixels of the picture.
            spacing: (N,) distance in picture pixels between patch pixels: decides the level.
            pictures: (N,) integers, which picture to read.

        Returns:
            (N, h, w) float32 in 0..255.
        """
        level = torch.minimum(spacing.log2().floor().clamp(min=0).long(), self._last[pictures])
        width, height = self._width[pictures, level].view(-1, 1, 1), self._height[pictures, level].view(-1, 1, 1)
        # Pixel centres: x of the picture lies at (x + 0.5) / 2^l - 0.5 of level l.
        shrink = torch.exp2(-level.float()).view(-1, 1, 1)
        x, left = _place((points[..., 0] + 0.5) * shrink - 0.5, width)
        y, top = _place((points[..., 1] + 0.5) * shrink - 0.5, height)
        corner = self._start[pictures, level].view(-1, 1, 1) + top * width + left
        right, below = (width > 1).long(), width * (height > 1)
        upper = torch.lerp(self._read(corner), self._read(corner + right), x)
        lower = torch.lerp(self._read(corner + below), self._read(corner + below + right), x)
        return torch.lerp(upper, lower, y)

    def _read(self, places: Tensor) -> Tensor:
        return self.pixels[places].float()


def _place(position: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """A position along an axis of `size` pixels, clamped to the border: its fraction, and the pixel before it."""
    inside = torch.minimum(position.clamp(min=0), size - 1)
    before = torch.minimum(inside.floor(), (size - 2).clamp(min=0))
    return inside - before, before.long()
