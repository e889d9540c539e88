"""Export a model to ONNX, describe two images with onnxruntime alone, and match them.

pip install 'doap[onnx]' scikit-image
python examples/onnx_describe.py [LEFT RIGHT] [--model doap-tiny-128]
"""

import argparse
from pathlib import Path

import cv2
import numpy as np
import onnxruntime
import skimage
from numpy.typing import NDArray

import doap
from doap.bridges.onnx import export_model

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("images", nargs="*", type=Path, help="two images; by default a stereo pair of scikit-image")
parser.add_argument("--model", default="doap-tiny-128")
parser.add_argument("--keypoints", type=int, default=500, help="per image")
options = parser.parse_args()

if options.images:
    left, right = (doap.read_grey(path) for path in options.images)
else:
    left, right = (cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) for image in skimage.data.stereo_motorcycle()[:2])

path = Path(f"{options.model}-image.onnx")
export_model(options.model, path, graph="image")

# From here on, doap is not needed.
session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def detect(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return SIFT's keypoints as frames: scale and angle as a 2x2 matrix, and the centre."""
    rows = []
    for keypoint in cv2.SIFT.create(options.keypoints).detect(image, None):
        scale, angle = keypoint.size / 2, np.deg2rad(keypoint.angle)
        c, s = scale * np.cos(angle), scale * np.sin(angle)
        rows.append([[c, -s, keypoint.pt[0]], [s, c, keypoint.pt[1]]])
    return np.array(rows, np.float32).reshape(-1, 2, 3)


frames = [detect(image) for image in (left, right)]
first, second = (
    session.run(["descriptors"], {"image": image, "frames": own})[0]
    for image, own in zip((left, right), frames, strict=True)
)
vectors = [np.unpackbits(rows, axis=1) - 0.5 if rows.dtype == np.uint8 else rows for rows in (first, second)]
similarities = vectors[0] @ vectors[1].T  # of bits: ranks as the Hamming distance does
forward, backward = similarities.argmax(1), similarities.argmax(0)
mutual = np.flatnonzero(backward[forward] == np.arange(len(forward)))
print(f"{path}: {len(first)} and {len(second)} keypoints, {len(mutual)} mutual matches")

expected = doap.describe_keypoints(left, frames[0], doap.load(options.model, fast=False)).descriptors
same = np.isclose(first, expected, rtol=0, atol=1e-5).all(1)
print(f"{same.mean():.1%} of the descriptors are those of PyTorch; in the others a pixel was rounded otherwise")
