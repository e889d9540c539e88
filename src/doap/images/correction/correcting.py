"""Correction of detected frames by a network."""

import numpy as np
import torch

from doap.images.affine_shape import orient
from doap.images.extraction import Pyramid, extract_patch_tensor
from doap.networks.frames import FrameNetwork
from doap.networks.frames.frame_network import INPUT_SIZE
from doap.types import Frames

CHUNK_SIZE = 4096  # frames: bounds the memory


def correct_frames(pyramid: Pyramid, frames: Frames, network: FrameNetwork, extent: float | None = None) -> Frames:
    """Correct affine shape, orientation and scale of frames; their centres stay.

    A network that corrects the shape alone is followed by `orient`.

    Args:
        pyramid: Pyramid of the image.
        frames: (N, 2, 3), of any orientation; they may leave the image, whose border is replicated.
        network: Network, on the device of the pyramid.
        extent: Half the side of the network's patch in units of the frame's scale; by default that for DoG frames.

    Returns:
        (N, 2, 3). A frame that is not finite or has no area is returned as it is.
    """
    extent = network.settings.extent if extent is None else extent
    corrected = frames.astype(np.float32)
    for start in range(0, len(frames), CHUNK_SIZE):
        rows = slice(start, start + CHUNK_SIZE)
        corrected[rows] = _correct(pyramid, corrected[rows], network, extent)
    return orient(pyramid, corrected) if network.settings.corrections == "shape" else corrected


@torch.inference_mode()
def _correct(pyramid: Pyramid, frames: Frames, network: FrameNetwork, extent: float) -> Frames:
    given = torch.from_numpy(frames).to(pyramid.device)
    shapes, centres = given[:, :, :2], given[:, :, 2:]
    for _ in range(network.settings.passes):
        patches = extract_patch_tensor(pyramid, torch.cat([shapes, centres], 2), INPUT_SIZE, extent)
        shapes = shapes @ network(patches[:, None].float())
    is_valid = given.isfinite().all(2).all(1) & shapes.isfinite().all(2).all(1) & (given[:, :, :2].det() != 0)
    result: Frames = (
        torch.cat([torch.where(is_valid[:, None, None], shapes, given[:, :, :2]), centres], 2).cpu().numpy()
    )
    return result
