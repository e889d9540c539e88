"""Compare the descriptors of patches that kornia extracts with those of doap's, on a stereo pair with ground truth.

    pip install doap kornia scikit-image
    python examples/kornia_extraction.py [--models doap-128 doap-256b]

Both describe the same keypoints. A match is correct if the measured disparity leads to within 3 pixels of it; average
precision is that of the mutual matches ranked by the ratio of distances.
"""

import argparse
from typing import Any

import kornia.feature as KF
import numpy as np
import skimage
import torch

import doap
from doap.bridges.kornia import DoapFeature, FrameDetector, PatchDescriptor

parser = argparse.ArgumentParser(description="Compare kornia's extraction of patches with doap's.")
parser.add_argument("--models", nargs="+", default=["doap-tiny-128", "doap-tiny-256b"])
parser.add_argument("--keypoints", type=int, default=1000)
arguments = parser.parse_args()

*pair, disparity = skimage.data.stereo_motorcycle()
images = [torch.from_numpy(image.copy()).permute(2, 0, 1)[None] / 255 for image in pair]  # (1, 3, H, W) in 0..1


def evaluate(features: list[Any]) -> tuple[int, int, float]:
    """Return the numbers of mutual and of correct matches with known disparity, and average precision in percent."""
    (first_lafs, _, first), (second_lafs, _, second) = features
    ratios, indices = KF.match_smnn(first[0], second[0], 1.0)
    left, right = first_lafs[0, indices[:, 0], :, 2].numpy(), second_lafs[0, indices[:, 1], :, 2].numpy()
    x, y = np.rint(left).astype(int).T
    is_known = np.isfinite(disparity[y, x])
    order = np.argsort(ratios[is_known, 0].numpy(), kind="stable")
    left, right, shifts = left[is_known][order], right[is_known][order], disparity[y, x][is_known][order]
    is_correct = np.hypot(right[:, 0] - left[:, 0] + shifts, right[:, 1] - left[:, 1]) < 3
    precision = np.cumsum(is_correct) / np.arange(1, len(is_correct) + 1)
    return len(is_correct), int(is_correct.sum()), 100 * float(precision[is_correct].mean())


print("| model | patches | matches | correct | AP % | mean cosine to the other |")
print("|---|---|---:|---:|---:|---:|")
for name in arguments.models:
    model = doap.load(name)
    own = DoapFeature(model, arguments.keypoints)
    # The same detector, with kornia's extraction. LAFs end where patches end, at the extent of the model.
    descriptor = KF.LAFDescriptor(PatchDescriptor(model), model.input_size)
    mixed = KF.LocalFeature(FrameDetector(arguments.keypoints), descriptor, model.extent_for("dog"))
    with torch.no_grad():
        results = {"doap": [own(image) for image in images], "kornia": [mixed(image) for image in images]}
    cosine = torch.nn.functional.cosine_similarity(results["doap"][0][2], results["kornia"][0][2], dim=2).mean()
    for patches, features in results.items():
        count, correct, precision = evaluate(features)
        print(f"| {name} | {patches} | {count} | {correct} | {precision:.2f} | {cosine:.4f} |")
