"""Repeated evaluation of models on the image pairs of a folder. Model-independent work is cached."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doap.datasets.sets.image_pairs import find_pairs
from doap.errors import DoapError
from doap.evaluation.harness.methods import to_inference
from doap.evaluation.image_pairs.reading import PairReader
from doap.evaluation.image_pairs.scoring import CORRECT_PIXELS, ImagePair, View, pair_average_precision
from doap.images.detection import CustomDetector, detector_name
from doap.images.extraction import extract_patches
from doap.matching.nearest import mutual_nearest
from doap.networks.descriptor import Descriptor, describe_patches
from doap.types import Descriptors, Progress, no_progress


class PairsScore(NamedTuple):
    """Scores of a model at one extent, in percent.

    Attributes:
        ap: Mean AP over the pairs with a homography, as in `doap eval pairs`.
        correct: Rate of mutual matches within 3 pixels of the ground truth, mean over the pairs with labelled points,
            for which AP is unknown; None if there are no such pairs.
    """

    ap: float
    correct: float | None


class PairsEvaluator:
    """Evaluates models by AP on planar pairs and by the rate of correct matches on the others.

    Model-independent work is cached: images are read and correspondences found at construction, and patches are
    extracted once per size and extent.

    Args:
        folder: Folder of image pairs, see `doap.datasets.sets.image_pairs`.
        detector: Name of a detector in `DETECTORS`, or a function, see `doap.images.detection.detect`.
        keypoints: Number of strongest keypoints per image.
        extents: Extents at which models are compared, see `Descriptor.extent_at`. Scores are averaged over them.
        device: Device that extracts patches.
        progress: Callback, called as `progress(done, total)` with numbers of pairs read.

    Raises:
        DoapError: If a pair cannot be read, or none has a homography.
    """

    def __init__(
        self,
        folder: Path,
        detector: str | CustomDetector,
        keypoints: int,
        extents: Sequence[float | None] = (None,),
        device: str = "cpu",
        progress: Progress = no_progress,
    ) -> None:
        self.detector = detector_name(detector)
        self.extents = list(dict.fromkeys(extents))
        self.pairs: list[ImagePair] = []
        self.labelled: list[ImagePair] = []
        reader, pair_files = PairReader(detector, keypoints), find_pairs(folder)
        if not any(files.is_planar for files in pair_files):
            raise DoapError(f"{folder}: all pairs have labelled points only; AP needs a pair with a homography")
        for number, files in enumerate(pair_files, 1):
            pair = reader.open(files)
            if files.is_planar:
                pair.partners  # noqa: B018 (computed here, where progress is reported)
            (self.pairs if files.is_planar else self.labelled).append(pair)
            progress(number, len(pair_files))
        self._views = _unique([v for pair in [*self.pairs, *self.labelled] for v in (pair.first, pair.second)])
        self._extract: Callable[[int, float], NDArray[np.uint8]] = cache(
            lambda size, extent: np.concatenate(
                [extract_patches(view.image, view.frames, size, extent, device) for view in self._views]
            )
        )

    def measure(self, model: Descriptor) -> dict[str, float]:
        """Evaluate a model at all extents.

        Returns:
            "pairs", the mean AP over the extents; "pairs at EXTENT" for each extent if there are several; and
            "correct", the mean rate of correct matches, if there are pairs with labelled points.
        """
        optimized = to_inference(model)
        scores = {
            extent: self.evaluate_at(optimized, optimized.extent_at(extent, self.detector)) for extent in self.extents
        }
        measures = {"pairs": float(np.mean([score.ap for score in scores.values()]))}
        if len(scores) > 1:
            measures |= {f"pairs at {extent or 'own'}": score.ap for extent, score in scores.items()}
        correct = [score.correct for score in scores.values() if score.correct is not None]
        return measures | ({"correct": float(np.mean(correct))} if correct else {})

    def evaluate_at(self, model: Descriptor, extent: float | None) -> PairsScore:
        """Evaluate a model as it is on whole patches of one extent; None is its own extent for the detector."""
        patches = self._extract(model.input_size, extent or model.extent_for(self.detector))
        ends = np.cumsum([len(view.frames) for view in self._views])
        parts = np.split(describe_patches(patches, model), ends[:-1])
        descriptors = dict(zip(map(id, self._views), parts, strict=True))
        ap = [
            pair_average_precision(pair, descriptors[id(pair.first)], descriptors[id(pair.second)])
            for pair in self.pairs
        ]
        correct = [
            _correct_rate(pair, descriptors[id(pair.first)], descriptors[id(pair.second)]) for pair in self.labelled
        ]
        return PairsScore(100 * float(np.mean(ap)), 100 * float(np.mean(correct)) if correct else None)


def _correct_rate(pair: ImagePair, first: Descriptors, second: Descriptors) -> float:
    """Return the rate of mutual matches within 3 pixels of the ground truth; there is always a mutual match."""
    indices, _ = mutual_nearest(first, second)
    points = pair.first.frames[indices[:, 0], :, 2], pair.second.frames[indices[:, 1], :, 2]
    return float((pair.ground_truth.errors(*points) <= CORRECT_PIXELS).mean())


def _unique(views: Sequence[View]) -> list[View]:
    """Return each view once, so that an image in several pairs is described once."""
    return list({id(view): view for view in views}.values())
