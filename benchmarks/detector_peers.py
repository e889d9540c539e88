"""Others' detectors of Harris corners and Hessian blobs, as detectors of frames, to compare ours with."""

import cv2
import kornia
import numpy as np
import torch

from doap.geometry.ellipses import scales
from doap.images.affine_shape import orient
from doap.images.detectors import HESSIAN_SCALE, Detector
from doap.images.frames import frames_from_keypoints
from doap.types import Frames, Grey


def peers(limit: int) -> dict[str, Detector]:
    """Detectors by name, each for `limit` frames."""
    found = {f"kornia {name}": kornia_detector(name, limit, False) for name in ("harris", "hessian")}
    found |= {f"kornia {name}-affine": kornia_detector(name, limit, True) for name in ("harris", "hessian")}
    return found | {"OpenCV harris-laplace": harris_laplace}


def kornia_detector(name: str, limit: int, affine: bool) -> Detector:
    """Kornia's scale-space detector with its defaults, and with its affine shape and orientation.

    Its region is a multiple of the scale; frames are made to name scale as ours do, by what it gives for a blob.
    """
    detector = kornia.feature.ScaleSpaceDetector(
        limit,
        resp_module=kornia.feature.CornerHarris(0.05) if name == "harris" else kornia.feature.BlobHessian(),
        aff_module=kornia.feature.LAFAffineShapeEstimator() if affine else None,
        ori_module=kornia.feature.LAFOrienter(),
    ).eval()

    def run(image: Grey) -> Frames:
        with torch.no_grad():
            lafs, strengths = detector(torch.from_numpy(image)[None, None].float() / 255)
        return np.asarray(lafs[0][strengths[0] > 0], np.float32)

    factor = np.float32(_blob_scale() / scales(run(_blob()))[0])

    def detect(image: Grey, _limit: int | None) -> Frames:
        found = run(image)
        found[:, :, :2] *= factor
        return found

    return detect


def harris_laplace(image: Grey, limit: int | None) -> Frames:
    """OpenCV's Harris-Laplace, which gives no orientation: its frames are turned by ours."""
    detector = cv2.xfeatures2d.HarrisLaplaceFeatureDetector.create(maxCorners=100_000)
    found = sorted(detector.detect(image, None), key=lambda k: -k.response)[:limit]
    frames = frames_from_keypoints(list(found))
    return orient(image, frames) if len(frames) else frames


BLOB = 5.0  # sigma, pixels


def _blob() -> Grey:
    y, x = np.mgrid[-60:61, -60:61]
    return np.round(60 + 120 * np.exp(-(x**2 + y**2) / (2 * BLOB**2))).astype(np.uint8)


def _blob_scale() -> float:
    return HESSIAN_SCALE * BLOB
