"""Thresholds on Hamming distances for ORB-SLAM, transferred from ORB to another descriptor.

ORB-SLAM accepts matches up to TH_LOW = 50 bits in a search by words, and up to TH_HIGH = 100 bits in a search near a
predicted position. Both numbers hold for ORB. Another descriptor gets the threshold that accepts the same share of
wrong pairs as ORB's does on the same image: the median of these over some images, because a few images with repeated
structures have most of the similar wrong pairs.

Pairs come from images and warped copies of them with changed light, whose geometry is known: a pair of keypoints is
wrong if they are more than 20 pixels from each other, and a keypoint has a correct pair if one of the other image is
within 2 pixels of it.
"""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from doap.bridges.dbow.vocabulary import Bits
from doap.choices import DEFAULT_DETECTOR, FrameShape
from doap.errors import DoapError
from doap.features import detect_and_describe
from doap.features.image_input import ImageLike, read_image, shrink_image
from doap.geometry.homographies import transform_points
from doap.images.detection import CustomDetector
from doap.images.extraction import Pyramid
from doap.images.warping import random_homography, relight, warp
from doap.networks.descriptor import Descriptor
from doap.types import Grey, Homography

ORB_LOW, ORB_HIGH = 50, 100  # ORBmatcher::TH_LOW, TH_HIGH
CORRECT_PIXELS, WRONG_PIXELS = 2.0, 20.0
MAX_SIZE = 800  # pixels of the longer side at which images are compared
WARP_STRENGTH = 0.5
BLOCK = 500  # keypoints compared with all of the other image at once

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Distances:
    """Numbers of pairs of keypoints by their Hamming distance.

    Attributes:
        wrong: (bits + 1,) pairs of different points.
        correct: (bits + 1,) pairs of the same point.
    """

    wrong: Counts
    correct: Counts

    def wrong_share(self, threshold: int) -> float:
        """Return the share of wrong pairs within a threshold."""
        return float(self.wrong[: threshold + 1].sum() / self.wrong.sum())

    def correct_share(self, threshold: int) -> float:
        """Return the share of correct pairs within a threshold."""
        return float(self.correct[: threshold + 1].sum() / self.correct.sum())

    def threshold(self, share: float) -> int:
        """Return the largest threshold that accepts at most this share of wrong pairs; 0 if none does."""
        accepted = np.cumsum(self.wrong) <= share * self.wrong.sum()
        return max(0, int(accepted.sum()) - 1)


@dataclass(frozen=True, eq=False)
class Thresholds:
    """Thresholds for ORB-SLAM's matcher.

    Attributes:
        low: TH_LOW.
        high: TH_HIGH.
        distances: Distances of the model, per image.
        orb: Distances of ORB in the same images.
    """

    low: int
    high: int
    distances: list[Distances]
    orb: list[Distances]

    def table(self) -> list[tuple[str, str, int, float, float]]:
        """Return rows of descriptor, name of the threshold, threshold, and median shares of wrong and correct pairs."""
        return [
            (
                descriptor,
                name,
                threshold,
                statistics.median(one.wrong_share(threshold) for one in images),
                statistics.median(one.correct_share(threshold) for one in images),
            )
            for descriptor, images, pair in (
                ("orb", self.orb, (ORB_LOW, ORB_HIGH)),
                ("model", self.distances, (self.low, self.high)),
            )
            for name, threshold in zip(("TH_LOW", "TH_HIGH"), pair, strict=True)
        ]


def calibrate_thresholds(
    images: Iterable[ImageLike],
    model: Descriptor,
    *,
    detector: str | CustomDetector = DEFAULT_DETECTOR,
    frames: FrameShape = "detected",
    max_keypoints: int | None = 1000,
    seed: int = 0,
) -> Thresholds:
    """Find the thresholds that accept the same share of wrong pairs as ORB-SLAM's do for ORB on the same images.

    Args:
        images: A dozen images of the kind that will be matched; larger ones are reduced to 800 pixels.
        model: Binary model.
        detector: Detector of the model's keypoints, see `detect_and_describe`; ORB has its own.
        frames: Shape of the model's frames.
        max_keypoints: Number of strongest keypoints per image, also of ORB.
        seed: Seed of the warps.

    Raises:
        DoapError: If the model is not binary, an image cannot be read, or too few keypoints are found.

    Example:
        >>> import doap, skimage
        >>> from doap.bridges.dbow import calibrate_thresholds
        >>> thresholds = calibrate_thresholds([skimage.data.camera()], doap.load("doap-tiny-256b"))
        >>> 0 < thresholds.low < thresholds.high < 128
        True
    """
    if model.kind != "binary":
        raise DoapError(f"{model.name}: thresholds in bits need a binary model such as doap-256b")
    random, light = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    orb = cv2.ORB.create(max_keypoints or 10**6)
    of_model, of_orb = [], []
    for image in images:
        first = np.asarray(shrink_image(_as_array(image), MAX_SIZE))
        homography = random_homography(first.shape, random, WARP_STRENGTH)
        second = relight(warp(Pyramid(first), homography), light)
        features = detect_and_describe(
            [first, second], model, detector=detector, frames=frames, max_keypoints=max_keypoints
        )
        own = count_distances([(one.keypoints, one.descriptors) for one in features], homography)
        reference = count_distances([_detect_orb(orb, first), _detect_orb(orb, second)], homography)
        if own is not None and reference is not None:
            of_model.append(own)
            of_orb.append(reference)
    if not of_model:
        raise DoapError("too few keypoints to calibrate thresholds; use images with texture")
    low, high = (
        int(statistics.median(a.threshold(b.wrong_share(known)) for a, b in zip(of_model, of_orb, strict=True)))
        for known in (ORB_LOW, ORB_HIGH)
    )
    return Thresholds(low, high, of_model, of_orb)


Keypoints = tuple[NDArray[np.float32], Bits]
"""(N, 2) points and (N, bits / 8) descriptors."""


def count_distances(keypoints: list[Keypoints], homography: Homography) -> Distances | None:
    """Count the pairs of keypoints of an image and its warped copy by their distance; None without correct pairs.

    The homography maps from the first to the second.
    """
    (first, a), (second, b) = keypoints
    if not len(a) or not len(b):
        return None
    bits = 8 * a.shape[1]
    mapped = transform_points(first.astype(np.float64), homography)
    signs = [np.unpackbits(x, axis=1).astype(np.float32) * 2 - 1 for x in (a, b)]
    wrong, correct = np.zeros(bits + 1, np.int64), np.zeros(bits + 2, np.int64)
    for start in range(0, len(a), BLOCK):
        block = slice(start, start + BLOCK)
        offsets = np.linalg.norm(mapped[block, None] - second, axis=2)
        distances = ((bits - signs[0][block] @ signs[1].T) / 2).astype(np.int64)
        wrong += np.bincount(distances[offsets > WRONG_PIXELS], minlength=bits + 1)
        # A point can have several keypoints, of different scales and orientations: the most similar counts.
        nearest = np.where(offsets <= CORRECT_PIXELS, distances, bits + 1).min(1)
        correct += np.bincount(nearest, minlength=bits + 2)
    correct = correct[: bits + 1]
    return Distances(wrong, correct) if wrong.any() and correct.any() else None


def _as_array(image: ImageLike) -> Grey:
    grey = read_image(image)
    return grey.cpu().numpy() if isinstance(grey, torch.Tensor) else grey


def _detect_orb(orb: cv2.ORB, image: Grey) -> Keypoints:
    keypoints, descriptors = orb.detectAndCompute(image, None)
    points = np.array([keypoint.pt for keypoint in keypoints], np.float32).reshape(-1, 2)
    return points, np.zeros((0, 32), np.uint8) if descriptors is None else np.asarray(descriptors, np.uint8)
