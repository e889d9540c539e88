"""Methods that correct the frames of a detector, one to one, so that all are compared on the same keypoints."""

from functools import lru_cache

import numpy as np
import torch

from doap.errors import DoapError
from doap.images.affine_shape import adapt_shapes, orient
from doap.images.correction.correcting import correct_frames
from doap.images.extraction import Pyramid
from doap.networks.frames.loading import DEFAULT_FRAMES, load_frame_network
from doap.types import Frames

KORNIA_SCALE = 6.0  # kornia's frames are this many times larger than those of DoG
METHODS = ("detected", "baumberg", "kornia", "learned")


def apply_frame_method(name: str, pyramid: Pyramid, frames: Frames) -> Frames:
    """Correct frames.

    Args:
        name: "detected", which leaves them as they are; "baumberg", where frames that do not converge keep their shape;
            "kornia", its `LAFAffineShapeEstimator`; "learned", the shipped network; or the path of another one. Frames
            of baumberg, kornia and networks of the shape alone are then oriented by the dominant gradient.
        pyramid: Pyramid of the image.
        frames: (N, 2, 3).

    Returns:
        (N, 2, 3).
    """
    if name == "detected":
        return frames
    if name == "baumberg":
        shaped, converged = adapt_shapes(pyramid, frames)
        return orient(pyramid, np.where(converged[:, None, None], shaped, frames))
    if name == "kornia":
        return orient(pyramid, _kornia_shape(pyramid, frames))
    network = load_frame_network(DEFAULT_FRAMES if name == "learned" else name, str(pyramid.device))
    return correct_frames(pyramid, frames, network)


def _kornia_shape(pyramid: Pyramid, frames: Frames) -> Frames:
    image = pyramid.level(0) / 255
    lafs = torch.from_numpy(frames).to(pyramid.device)[None].clone()
    lafs[..., :2] *= KORNIA_SCALE
    with torch.inference_mode():
        shaped = _kornia_estimator(str(pyramid.device))(lafs, image)[0].cpu().numpy().astype(np.float32)
    shaped[..., :2] /= np.float32(KORNIA_SCALE)
    return np.asarray(shaped)


@lru_cache(1)
def _kornia_estimator(device: str) -> torch.nn.Module:
    try:
        from kornia.feature import LAFAffineShapeEstimator
    except ImportError as error:
        raise DoapError("the frames of kornia need kornia: pip install kornia") from error
    return LAFAffineShapeEstimator().to(device).eval()
