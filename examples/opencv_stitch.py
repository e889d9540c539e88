"""Stitch photos of a rotating camera to a panorama: cv2.detail with the features of doap.

    pip install doap scikit-image
    python examples/opencv_stitch.py [photo.jpg ...] [--model doap-128] [-o panorama.jpg]

Without photos, three views of an image of scikit-image are stitched.
"""

import argparse
from typing import Any

import cv2
import numpy as np

from doap.bridges import opencv

detail: Any = cv2.detail  # parts of it are missing in OpenCV's types


def make_views(focal: float = 700) -> list[Any]:
    """Return what a camera that turns by 14 degrees, with some noise, sees of an image at infinity."""
    import skimage

    image = skimage.data.stereo_motorcycle()[0][:, :, ::-1].copy()
    source, view = (
        np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1]])
        for height, width in (image.shape[:2], (420, 360))
    )
    turns = (cv2.Rodrigues(np.array([0.0, np.radians(degrees), 0.0]))[0] for degrees in (14, 0, -14))
    views = (cv2.warpPerspective(image, view @ turn @ np.linalg.inv(source), (360, 420)) for turn in turns)
    random = np.random.default_rng(0)
    return [(view + random.normal(0, 8, view.shape)).clip(0, 255).astype(np.uint8) for view in views]


parser = argparse.ArgumentParser(description="Stitch photos of a rotating camera to a panorama.")
parser.add_argument("photos", nargs="*", help="overlapping photos; without them, views of an image of scikit-image")
parser.add_argument("--model", default="doap-128")
parser.add_argument("-o", "--output", default="panorama.jpg")
arguments = parser.parse_args()
photos: list[Any] = [cv2.imread(path) for path in arguments.photos] or make_views()
if any(photo is None for photo in photos):
    parser.error("a photo cannot be read")

# The line that differs from a script with cv2.SIFT_create() and cv2.detail.computeImageFeatures2(finder, photo).
finder = opencv.create(arguments.model, max_keypoints=1000)
features = [finder.computeImageFeatures(photo) for photo in photos]

matches = detail.BestOf2NearestMatcher(False, 0.3).apply2(features)
kept = detail.leaveBiggestComponent(features, matches, 1.0).ravel().tolist()
if len(kept) < len(photos):
    raise SystemExit(f"only the photos {kept} overlap; leave out the others")
estimated, cameras = detail.HomographyBasedEstimator().apply(features, matches, None)
for camera in cameras:
    camera.R = camera.R.astype(np.float32)
adjuster = detail.BundleAdjusterRay()
adjuster.setConfThresh(1.0)
adjusted, cameras = adjuster.apply(features, matches, cameras)
if not (estimated and adjusted):
    raise SystemExit("the cameras could not be estimated; take photos that overlap more")

focal = float(np.median([camera.focal for camera in cameras]))
warper = cv2.PyRotationWarper("spherical", focal)
blender = detail.Blender.createDefault(detail.BLENDER_MULTI_BAND)
warped = []
for photo, camera in zip(photos, cameras, strict=True):
    intrinsics = camera.K().astype(np.float32)
    white = np.full(photo.shape[:2], 255, np.uint8)
    corner, image = warper.warp(photo, intrinsics, camera.R, cv2.INTER_LINEAR, cv2.BORDER_REFLECT)
    _, mask = warper.warp(white, intrinsics, camera.R, cv2.INTER_NEAREST, cv2.BORDER_CONSTANT)
    warped.append((image, mask, corner))
corners = [corner for _, _, corner in warped]
blender.prepare(detail.resultRoi(corners=corners, sizes=[image.shape[1::-1] for image, _, _ in warped]))
for image, mask, corner in warped:
    blender.feed(image.astype(np.int16), mask, corner)
panorama, _ = blender.blend(None, None)

height, width = panorama.shape[:2]
cv2.imwrite(arguments.output, panorama.clip(0, 255).astype(np.uint8))
print(f"{arguments.output}: {width}x{height} pixels of {len(photos)} photos, focal length {focal:.0f} pixels")
