"""Correction of detected frames by a network."""

import numpy as np
import torch
from numpy.typing import NDArray

from doap.images.affine_shape import adapt_shapes, orient, orient_all
from doap.images.extraction import Pyramid, extract_patch_tensor
from doap.images.full_precision import without_autocast
from doap.networks.frames import FrameNetwork
from doap.networks.frames.frame_network import INPUT_SIZE, Start
from doap.types import Frames

CHUNK_SIZE = 4096  # frames: bounds the memory


@without_autocast
def correct_frames(
    pyramid: Pyramid, frames: Frames, network: FrameNetwork, extent: float | None = None
) -> tuple[Frames, NDArray[np.int64]]:
    """Correct affine shape, orientation and scale of frames; their centres stay.

    A frame becomes several if the network's card says "peaks": one for each peak of the gradients around it, as in
    SIFT. Frames that differ by the orientation only should therefore be given once.

    Args:
        pyramid: Pyramid of the image.
        frames: (N, 2, 3), of any orientation; they may leave the image, whose border is replicated.
        network: Network, on the device of the pyramid.
        extent: Half the side of the network's patch in units of the frame's scale; by default that for DoG frames.

    Returns:
        (M, 2, 3) corrected frames, M >= N, and for each the index of the given frame, (M,), ascending. A frame that is
        not finite or has no area is returned as it is.
    """
    settings = network.settings
    corrected = frames.astype(np.float32)
    is_valid = np.isfinite(corrected).all((1, 2)) & (np.linalg.det(corrected[:, :, :2].astype(np.float64)) != 0)
    valid = start_frames(pyramid, corrected[is_valid], settings.start)
    for start in range(0, len(valid), CHUNK_SIZE):
        chunk = slice(start, start + CHUNK_SIZE)
        valid[chunk] = _correct(pyramid, valid[chunk], network, settings.extent if extent is None else extent)
    is_finite = np.isfinite(valid).all((1, 2))
    corrected[np.flatnonzero(is_valid)[is_finite]] = valid[is_finite]
    if settings.corrections == "full" and settings.orientation == "predicted":
        return corrected, np.arange(len(corrected))
    is_valid[is_valid] = is_finite
    oriented, rows = orient_all(pyramid, corrected[is_valid])
    rows = np.append(np.flatnonzero(is_valid)[rows], np.flatnonzero(~is_valid))
    order = np.argsort(rows, kind="stable")
    return np.concatenate([oriented, corrected[~is_valid]])[order], rows[order]


def start_frames(pyramid: Pyramid, frames: Frames, start: Start) -> Frames:
    """Return (N, 2, 3) detected frames as a network takes them.

    Args:
        pyramid: Pyramid of the image.
        frames: (N, 2, 3) detected frames.
        start: See `FrameSettings`; frames whose adaptation does not converge keep their shape.
    """
    if start == "detected" or not len(frames):
        return frames
    shaped, converged = adapt_shapes(pyramid, frames)
    return orient(pyramid, np.where(converged[:, None, None], shaped, frames))


@torch.inference_mode()
def _correct(pyramid: Pyramid, frames: Frames, network: FrameNetwork, extent: float) -> Frames:
    given = torch.from_numpy(frames).to(pyramid.device)
    shapes, centres = given[:, :, :2], given[:, :, 2:]
    for _ in range(network.settings.passes):
        patches = extract_patch_tensor(pyramid, torch.cat([shapes, centres], 2), INPUT_SIZE, extent)
        shapes = shapes @ network(patches[:, None].float())
    return np.asarray(torch.cat([shapes, centres], 2).cpu().numpy())
