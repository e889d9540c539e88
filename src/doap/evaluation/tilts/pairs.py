"""Pairs of a photo and a view of it from the side, and how well methods match them."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from doap.choices import DEFAULT_DETECTOR
from doap.errors import DoapError
from doap.evaluation.metrics.average_precision import average_precision
from doap.evaluation.tilts.frame_methods import apply_frame_method
from doap.features import Features, match
from doap.geometry.ellipses import scales
from doap.geometry.homographies import transform_points
from doap.images.detectors import DETECTORS
from doap.images.extraction import Pyramid, extract_patch_tensor
from doap.images.frames import transform_frames
from doap.images.jitter.views import LEVELS
from doap.images.reading import read_grey, shrink
from doap.images.warping import relight, view_from_side
from doap.matching.nearest import nearest
from doap.networks import DEFAULT_MODEL
from doap.networks.descriptor import Descriptor, describe_patches
from doap.networks.registry import load
from doap.types import Frames, Grey, Homography

CORRECT_PIXELS = 3.0
CORRECT_SCALE = 1.5
MAX_CORNER_ERROR = 5.0  # pixels
MIN_KEYPOINTS = 200  # photos with fewer are skipped


@dataclass(frozen=True)
class TiltTask:
    """A photo, and how to match it with views of it.

    Attributes:
        path: The photo.
        seed: Determines the axes of the views, and their light.
        methods: Names of methods of `frame_methods`.
        model: Name or path of the descriptor.
        device: Device of pyramids and networks.
        tilts: Tilts of the views.
        turns: Angles by which the views are turned, in degrees, for every tilt.
        keypoints: Number of strongest detected frames per image.
        size: Longer side of the photo, in pixels.
        detector: Name of a detector in `DETECTORS`.
    """

    path: Path
    seed: int
    methods: tuple[str, ...]
    model: str = DEFAULT_MODEL
    device: str = "cpu"
    tilts: tuple[float, ...] = (1.0, 2.0, 4.0, 6.0, 8.0)
    turns: tuple[float, ...] = (0.0, 45.0, 90.0)
    keypoints: int = 1000
    size: int = 640
    detector: str = DEFAULT_DETECTOR


@dataclass(frozen=True)
class TiltScore:
    """Result of one method for one pair.

    Attributes:
        photo: Name of the photo.
        tilt: Tilt of the view.
        turn: Turn of the view in degrees.
        method: Name of the method.
        ap: Average Precision of the nearest neighbours, from 0 to 1.
        is_solved: Whether the estimated homography maps the corners of the photo to within 5 pixels.
    """

    photo: str
    tilt: float
    turn: float
    method: str
    ap: float
    is_solved: bool


def score_photo(task: TiltTask) -> list[TiltScore]:
    """Match a photo with its views by all methods; a photo that has few keypoints or cannot be read gives no scores."""
    try:
        photo = shrink(read_grey(task.path), task.size)
    except DoapError:
        return []
    detect, model = DETECTORS[task.detector], _load(task.model, task.device)
    frames = detect(photo, task.keypoints)
    if len(frames) < MIN_KEYPOINTS:
        return []
    random = np.random.default_rng(task.seed)
    light = torch.Generator().manual_seed(task.seed)
    first = {name: _describe(name, photo, frames, model, task) for name in task.methods}
    scores = []
    for tilt in task.tilts:
        for turn in task.turns:
            clean, homography = view_from_side(photo, tilt, random.uniform(0, 2 * np.pi), np.radians(turn))
            view = relight(torch.from_numpy(clean)[None].float(), light, LEVELS["easy"])
            detected = detect(view, task.keypoints)
            correct = find_correct(frames, detected, homography)
            if not correct.any():
                continue
            for name in task.methods:
                own, rows = first[name]
                second, other_rows = _describe(name, view, detected, model, task)
                ap, is_solved = _score(own, second, correct[np.ix_(rows, other_rows)], homography)
                scores.append(TiltScore(task.path.name, tilt, turn, name, ap, is_solved))
    return scores


def find_correct(first: Frames, second: Frames, homography: Homography) -> NDArray[np.bool_]:
    """Return which detected frames show the same point at about the same scale, (N, K).

    A frame of the first image is mapped to within 3 pixels of the other's centre, and a factor of 1.5 of its scale.
    The frames are those of the detector, so that a pair has the same correspondences for all methods.
    """
    expected = transform_frames(first, homography)
    distances = np.linalg.norm(expected[:, None, :, 2] - second[None, :, :, 2], axis=2)
    ratios = np.abs(np.log(scales(expected)[:, None] / scales(second)[None]))
    return np.asarray((distances <= CORRECT_PIXELS) & (ratios <= np.log(CORRECT_SCALE)))


def _describe(
    name: str, image: Grey, frames: Frames, model: Descriptor, task: TiltTask
) -> tuple[Features, NDArray[np.int64]]:
    """Describe the frames of a method; return also the detected frame of each."""
    pyramid = Pyramid(image, task.device)
    frames, rows = apply_frame_method(name, pyramid, frames)
    extent = model.extent_for(task.detector)
    patches = extract_patch_tensor(pyramid, torch.from_numpy(frames), model.input_size, extent)
    descriptors = describe_patches(patches, model).cpu().numpy()
    return Features(frames, descriptors, (image.shape[0], image.shape[1]), model.name), rows


def _score(first: Features, second: Features, correct: NDArray[np.bool_], homography: Homography) -> tuple[float, bool]:
    neighbours, distances = nearest(first.descriptors, second.descriptors)
    is_correct = correct[np.arange(len(first)), neighbours]
    ap = average_precision(distances, is_correct, int(correct.any(1).sum()))
    estimate = match(first, second, geometry="homography").matrix
    return float(ap), estimate is not None and corner_error(estimate, homography, first.size) <= MAX_CORNER_ERROR


def corner_error(estimate: Homography, homography: Homography, size: tuple[int, int]) -> float:
    """Return the largest distance between the corners of an image as two homographies map them, in pixels."""
    height, width = size
    corners = np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], np.float64)
    error = transform_points(corners, estimate) - transform_points(corners, homography)
    return float(np.linalg.norm(error, axis=1).max())


@lru_cache(2)
def _load(model: str, device: str) -> Descriptor:
    return load(model, device)
