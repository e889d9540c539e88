"""Methods that correct the frames of a detector; all are compared on the same keypoints."""

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from doap.errors import DoapError
from doap.images.affine_shape import adapt_shapes, orient_all
from doap.images.correction.correcting import correct_frames
from doap.images.extraction import Pyramid
from doap.images.frames import first_of_each_ellipse
from doap.networks.frames.loading import DEFAULT_FRAMES, load_frame_network
from doap.types import Frames

KORNIA_SCALE = 6.0  # kornia's frames are this many times larger than those of DoG
METHODS = ("detected", "baumberg", "kornia", "learned")


def apply_frame_method(name: str, pyramid: Pyramid, frames: Frames) -> tuple[Frames, NDArray[np.int64]]:
    """Correct frames.

    Args:
        name: "detected", which leaves them as they are; "baumberg", where frames that do not converge keep their shape;
            "kornia", its `LAFAffineShapeEstimator`; "learned", the shipped network; or the path of another one. All but
            the first give each keypoint one shape, and one frame for each peak of the gradients within it.
        pyramid: Pyramid of the image.
        frames: (N, 2, 3) circular frames, of which several may be one keypoint's.

    Returns:
        (M, 2, 3) frames, and for each the index of a given frame of the same keypoint, (M,).
    """
    if name == "detected":
        return frames, np.arange(len(frames))
    first = first_of_each_ellipse(frames)
    keypoints = frames[first]
    if name == "baumberg":
        shaped, converged = adapt_shapes(pyramid, keypoints)
        corrected, rows = orient_all(pyramid, np.where(converged[:, None, None], shaped, keypoints))
    elif name == "kornia":
        corrected, rows = orient_all(pyramid, _kornia_shape(pyramid, keypoints))
    else:
        network = load_frame_network(DEFAULT_FRAMES if name == "learned" else name, str(pyramid.device))
        corrected, rows = correct_frames(pyramid, keypoints, network)
    return corrected, first[rows]


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
    except ModuleNotFoundError as error:
        raise DoapError("kornia is not installed; run: pip install 'doap[baselines]'") from error
    return LAFAffineShapeEstimator().to(device).eval()
