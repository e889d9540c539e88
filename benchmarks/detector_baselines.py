"""Detectors of other libraries, as detectors of frames: kornia's Harris and Hessian, OpenCV's Harris-Laplace."""

import cv2
import kornia
import numpy as np
import torch

from doap.geometry.ellipses import scales
from doap.images.affine_shape import orient
from doap.images.detectors import HESSIAN_SCALE, Detector
from doap.images.frames import frames_from_keypoints
from doap.types import Frames, Grey


def baselines(limit: int) -> dict[str, Detector]:
    """Return detectors by name, each for `limit` frames."""
    detectors = {f"kornia {name}": kornia_detector(name, limit, False) for name in ("harris", "hessian")}
    detectors |= {f"kornia {name}-affine": kornia_detector(name, limit, True) for name in ("harris", "hessian")}
    return detectors | {"OpenCV harris-laplace": harris_laplace}


def kornia_detector(name: str, limit: int, affine: bool) -> Detector:
    """Return kornia's scale-space detector with its defaults, its orientation, and optionally its affine shape.

    Its regions are a multiple of our scale. Frames are rescaled so that both agree on a blob.
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
        frames = run(image)
        frames[:, :, :2] *= factor
        return frames

    return detect


def harris_laplace(image: Grey, limit: int | None) -> Frames:
    """Detect OpenCV's Harris-Laplace frames, oriented by `orient`, since OpenCV gives no orientation."""
    detector = cv2.xfeatures2d.HarrisLaplaceFeatureDetector.create(maxCorners=100_000)
    keypoints = sorted(detector.detect(image, None), key=lambda k: -k.response)[:limit]
    frames = frames_from_keypoints(list(keypoints))
    return orient(image, frames) if len(frames) else frames


BLOB = 5.0  # sigma, pixels


def _blob() -> Grey:
    y, x = np.mgrid[-60:61, -60:61]
    return np.round(60 + 120 * np.exp(-(x**2 + y**2) / (2 * BLOB**2))).astype(np.uint8)


def _blob_scale() -> float:
    return HESSIAN_SCALE * BLOB
