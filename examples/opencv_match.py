"""Match two images with OpenCV, with SIFT and with doap: one line differs.

    pip install doap scikit-image
    python examples/opencv_match.py [left.jpg right.jpg] [--model doap-128]

Prints the matches that agree with an epipolar geometry, and writes those of doap to opencv_match.png.
"""

import argparse
import time
from typing import Any

import cv2
import numpy as np

from doap.bridges import opencv


def match(feature: Any, left: Any, right: Any) -> tuple[Any, Any, list[cv2.DMatch]]:
    """Return the keypoints of both images and the matches that agree with a fundamental matrix."""
    first, first_descriptors = feature.detectAndCompute(left, None)
    second, second_descriptors = feature.detectAndCompute(right, None)
    matches = cv2.BFMatcher(feature.defaultNorm(), crossCheck=True).match(first_descriptors, second_descriptors)
    left_points = np.array([first[m.queryIdx].pt for m in matches])
    right_points = np.array([second[m.trainIdx].pt for m in matches])
    _, inliers = cv2.findFundamentalMat(left_points, right_points, cv2.USAC_MAGSAC, 1.5, 0.999, 10_000)
    return first, second, [m for m, is_inlier in zip(matches, inliers.ravel(), strict=True) if is_inlier]


parser = argparse.ArgumentParser(description="Match two images with OpenCV, with SIFT and with doap.")
parser.add_argument("images", nargs="*", help="two images; without them, a stereo pair of scikit-image")
parser.add_argument("--model", default="doap-128")
parser.add_argument("--keypoints", type=int, default=2000)
arguments = parser.parse_args()

if len(arguments.images) not in (0, 2):
    parser.error("give two images, or none")
if arguments.images:
    images: list[Any] = [cv2.imread(path) for path in arguments.images]
    if any(image is None for image in images):
        parser.error("an image cannot be read")
else:
    import skimage

    images = [image[:, :, ::-1].copy() for image in skimage.data.stereo_motorcycle()[:2]]
left, right = images

for name in ("SIFT", arguments.model):
    if name == "SIFT":
        feature: Any = cv2.SIFT.create(arguments.keypoints)
    else:
        feature = opencv.create(arguments.model, max_keypoints=arguments.keypoints)  # the line that differs
    start = time.perf_counter()
    first, second, inliers = match(feature, left, right)
    seconds = time.perf_counter() - start
    print(f"{name}: {len(first)} and {len(second)} keypoints, {len(inliers)} inliers, {seconds:.2f} s")

picture: Any = None
cv2.imwrite("opencv_match.png", cv2.drawMatches(left, first, right, second, inliers, picture))
