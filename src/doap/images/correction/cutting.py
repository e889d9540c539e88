"""Patches of an atlas as differentiable functions of their frames."""

from torch import Tensor

from doap.images.atlas import Atlas
from doap.images.extraction import average_samples, patch_grid, pixel_spacing


def cut_patches(atlas: Atlas, frames: Tensor, photos: Tensor, size: int, extent: float) -> Tensor:
    """Cut the patch of every frame; gradients reach the frames.

    The patches are those of `extract_patches` but for rounding. The level of the pyramid is chosen by the frame, and
    constant in the gradient.

    Args:
        atlas: Pyramids of the photos.
        frames: (N, 2, 3), of any floating point type.
        photos: (N,) photo of each frame.
        size: Side of the patches in pixels.
        extent: Half the side of the patch in units of the frame's scale.

    Returns:
        (N, 1, size, size) grey values, of the type of the frames.
    """
    x, y = patch_grid(size, frames.device).to(frames.dtype).unbind(-1)
    spacing = pixel_spacing(frames.detach(), size, extent)
    return average_samples(atlas.sample(frames, (x, y), extent, spacing, photos))[:, None]
