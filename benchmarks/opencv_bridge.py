"""Figures of docs/bridges/opencv.md: OpenCV's scripts with SIFT and with doap, FLANN, norms and sizes of keypoints.

    python benchmarks/opencv_bridge.py
    python benchmarks/opencv_bridge.py photos/scene-1 photos/scene-2
    python benchmarks/opencv_bridge.py --extents pairs/val --model doap-256b

Without folders, the pair is the stereo pair of scikit-image. Of a folder, the first two photos are a pair, reduced to
1,000 pixels. Inliers are mutual matches that agree with a fundamental matrix within 1.5 pixels.

With --extents, keypoints of OpenCV's detectors are described at several extents: AP of the pairs with a homography in a
folder of image pairs, as `doap eval pairs` computes it, by the factor on the model's extent for DoG keypoints.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import skimage

import doap
from doap.bridges import opencv
from doap.evaluation.image_pairs.evaluator import PairsEvaluator
from doap.images.detection import detector_name

Image = Any
KEYPOINTS = 2000
MODELS = ("doap-128", "doap-256b", "doap-tiny-128", "doap-tiny-256b")
FACTORS = (0.06, 0.09, 0.12, 0.25, 0.3, 0.5, 0.7, 1.0)
STRONGEST = 500  # keypoints per image of the comparison of extents
AKAZE_THRESHOLD = 1e-4  # a tenth of OpenCV's default, by which it finds nothing in some images
DISTINCTIVE = 0.9  # largest ratio of the distances to the nearest and second nearest neighbour


def read_pair(folder: Path) -> tuple[Image, Image]:
    """Return the first two photos of a folder, reduced to 1,000 pixels."""
    photos = sorted(path for path in folder.iterdir() if path.suffix in (".jpg", ".png", ".webp"))[:2]
    first, second = (_reduce(cv2.imread(str(path))) for path in photos)
    return first, second


def _reduce(image: Image) -> Image:
    factor = min(1.0, 1000 / max(image.shape))
    return cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)


def count_inliers(described: list[tuple[Any, Any]], norm: int) -> int:
    """Return the number of inliers of the keypoints and descriptors of two images."""
    (first, a), (second, b) = described
    matches = cv2.BFMatcher(norm, crossCheck=True).match(a, b)
    points = [np.array([first[m.queryIdx].pt for m in matches]), np.array([second[m.trainIdx].pt for m in matches])]
    _, inliers = cv2.findFundamentalMat(points[0], points[1], cv2.USAC_MAGSAC, 1.5, 0.999, 10_000)
    return 0 if inliers is None else int(inliers.sum())


def best_time(function: Callable[[], Any], repeats: int = 3) -> float:
    """Return the shortest time of a call in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def compare_features(name: str, pair: tuple[Image, Image]) -> None:
    """Print inliers and time of a script with each feature, and the loss by a wrong norm and by FLANN."""
    features: dict[str, Any] = {"SIFT": cv2.SIFT.create(KEYPOINTS)}
    features |= {model: opencv.create(model, max_keypoints=KEYPOINTS) for model in MODELS}
    for title, feature in features.items():
        described = [feature.detectAndCompute(image, None) for image in pair]
        seconds = best_time(partial(feature.detectAndCompute, pair[0], None))
        print(f"{name}, {title}: {count_inliers(described, feature.defaultNorm())} inliers, {seconds:.2f} s per image")
        if title == "SIFT":
            continue
        if feature.defaultNorm() == cv2.NORM_HAMMING:
            print(f"{name}, {title}: {count_inliers(described, cv2.NORM_L2)} inliers with the wrong norm NORM_L2")
        compare_flann(f"{name}, {title}", feature, described[0][1], described[1][1])


def compare_flann(title: str, feature: opencv.DoapFeature2D, first: Any, second: Any) -> None:
    """Print which share of the nearest neighbours FLANN finds, and the times of both searches."""
    matcher, flann = feature.createMatcher(), cv2.FlannBasedMatcher(*feature.flannParams())
    exact, approximate = matcher.knnMatch(first, second, k=2), flann.knnMatch(first, second, k=2)
    hits = np.array(
        [bool(f) and f[0].distance <= e[0].distance * (1 + 1e-5) for e, f in zip(exact, approximate, strict=True)]
    )
    distinctive = np.array([e[0].distance < DISTINCTIVE * e[1].distance for e in exact])
    times = [best_time(partial(m.knnMatch, first, second, k=2)) for m in (matcher, flann)]
    print(
        f"{title}: FLANN finds {100 * hits.mean():.0f} % of the neighbours, {100 * hits[distinctive].mean():.0f} % of "
        f"{distinctive.sum()} distinctive ones, in {times[1]:.3f} s; BFMatcher in {times[0]:.3f} s"
    )


def compare_extents(folder: Path, name: str) -> None:
    """Print the AP of the keypoints of OpenCV's detectors by extent."""
    module = cv2 if hasattr(cv2, "AKAZE") else cv2.xfeatures2d
    detectors = (
        cv2.ORB.create(STRONGEST),
        module.AKAZE.create(threshold=AKAZE_THRESHOLD),
        module.BRISK.create(),
        cv2.GFTTDetector.create(STRONGEST),
        cv2.FastFeatureDetector.create(),
    )
    model = doap.load(name)
    for detector in detectors:
        evaluator = PairsEvaluator(folder, detector.detect, STRONGEST)
        for factor in FACTORS:
            precision = evaluator.evaluate_at(model, factor * model.extent_for("dog")).ap
            print(f"{name}, {detector_name(detector.detect)}, {factor} of the extent for DoG: AP {precision:.1f} %")


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--extents", type=Path, metavar="PAIRS", help="compare extents on these image pairs instead")
    parser.add_argument("--model", default="doap-tiny-128", help="model of --extents")
    arguments = parser.parse_args()
    if arguments.extents:
        compare_extents(arguments.extents, arguments.model)
        return
    left, right, _ = skimage.data.stereo_motorcycle()
    pairs = {folder.name: read_pair(folder) for folder in arguments.folders}
    pairs = pairs or {"motorcycle": (left[:, :, ::-1].copy(), right[:, :, ::-1].copy())}
    for name, pair in pairs.items():
        compare_features(name, pair)


if __name__ == "__main__":
    main()
