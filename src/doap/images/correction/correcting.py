"""Correction of detected frames by a network."""

import numpy as np
import torch

from doap.images.affine_shape import adapt_shapes, orient
from doap.images.extraction import Pyramid, extract_patch_tensor
from doap.networks.frames import FrameNetwork
from doap.networks.frames.frame_network import INPUT_SIZE, Start
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
    corrected = start_frames(pyramid, frames, network.settings.start)
    for start in range(0, len(frames), CHUNK_SIZE):
        rows = slice(start, start + CHUNK_SIZE)
        corrected[rows] = _correct(pyramid, corrected[rows], network, extent)
    return orient(pyramid, corrected) if network.settings.corrections == "shape" else corrected


def start_frames(pyramid: Pyramid, frames: Frames, start: Start) -> Frames:
    """Return a copy of the frames as a network takes them.

    Args:
        pyramid: Pyramid of the image.
        frames: (N, 2, 3) detected frames.
        start: See `FrameSettings`; frames whose adaptation does not converge keep their shape.
    """
    copy = frames.astype(np.float32)
    if start == "detected" or not len(copy):
        return copy
    is_valid = np.isfinite(copy).all((1, 2)) & (np.abs(np.linalg.det(copy[:, :, :2].astype(np.float64))) > 0)
    valid = copy[is_valid]
    shaped, converged = adapt_shapes(pyramid, valid)
    copy[is_valid] = orient(pyramid, np.where(converged[:, None, None], shaped, valid))
    return copy


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
