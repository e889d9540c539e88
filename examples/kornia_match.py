"""Match two images with kornia's LocalFeatureMatcher and the features of doap.

    pip install doap kornia scikit-image
    python examples/kornia_match.py [left.jpg right.jpg] [--model doap-256b] [--device cuda]

Prints the matches that agree with an epipolar geometry, and writes them to kornia_match.png.
"""

import argparse
from pathlib import Path

import kornia.feature as KF
import numpy as np
import skimage
import torch

import doap
from doap.bridges.kornia import DoapFeature
from doap.features.drawing import draw_matches

parser = argparse.ArgumentParser(description="Match two images with kornia and the features of doap.")
parser.add_argument("images", nargs="*", help="two images; without them, a stereo pair of scikit-image")
parser.add_argument("--model", default="doap-tiny-128")
parser.add_argument("--keypoints", type=int, default=1000)
parser.add_argument("--device", default="cpu")
arguments = parser.parse_args()

if len(arguments.images) not in (0, 2):
    parser.error("give two images, or none")
if arguments.images:
    left, right = (doap.read_grey(path) for path in arguments.images)
else:
    pair = skimage.data.stereo_motorcycle()[:2]
    left, right = (np.asarray(255 * skimage.color.rgb2gray(image), np.uint8) for image in pair)

feature = DoapFeature(doap.load(arguments.model, arguments.device), num_features=arguments.keypoints)
matcher = KF.LocalFeatureMatcher(feature, KF.DescriptorMatcher("smnn", 0.9))
tensors = [torch.tensor(image, device=arguments.device)[None, None] / 255 for image in (left, right)]  # 0..1
with torch.no_grad():
    matches = matcher({"image0": tensors[0], "image1": tensors[1]})

first, second = matches["keypoints0"].cpu().numpy(), matches["keypoints1"].cpu().numpy()
inliers = doap.verify(first, second, right.shape).inliers
title = f"{arguments.model}: {len(first)} matches, {inliers.sum()} agree with an epipolar geometry"
print(title)
draw_matches(left, right, first[inliers], second[inliers], title, Path("kornia_match.png"))
