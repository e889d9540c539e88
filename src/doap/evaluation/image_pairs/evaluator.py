"""What many models do on the image pairs of a folder: what does not hang on the model is done once."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doap.datasets.sets.image_pairs import find_pairs
from doap.errors import DoapError
from doap.evaluation.image_pairs.reading import PairReader
from doap.evaluation.image_pairs.scoring import CORRECT_PIXELS, ImagePair, View, pair_average_precision
from doap.images.extraction import extract_patches
from doap.matching.nearest import mutual_nearest
from doap.networks.descriptor import Descriptor, describe
from doap.networks.fast import fastest
from doap.types import Descriptors, Progress, no_progress


class PairsScore(NamedTuple):
    """A model at one extent, in percent.

    Attributes:
        ap: mean over the pairs with a homography, as `doap eval pairs` has it.
        right: of mutual matches, those within 3 pixels of the truth, mean over the pairs known by labelled points, of
            which nobody knows how many right matches they have; None without such pairs.
    """

    ap: float
    right: float | None


class PairsEvaluator:
    """Judges models by AP on planar pairs and by right matches on others.

    Images are read, frames and their correspondences found at the start, and patches cut once a size and extent.

    Args:
        folder: of pairs, see `pairs`.
        detector: of `DETECTORS`.
        keypoints: the strongest of each image.
        extents: at which to cut, None is each model's own for the detector; the mean over all of them counts.
        device: where to cut.
        progress: told the pairs that are read, and how many there are.

    Raises:
        DoapError: one line, for a pair that cannot be read, or if none is known by a homography.
    """

    def __init__(
        self,
        folder: Path,
        detector: str,
        keypoints: int,
        extents: Sequence[float | None] = (None,),
        device: str = "cpu",
        progress: Progress = no_progress,
    ) -> None:
        self.detector = detector
        self.extents = list(dict.fromkeys(extents))
        self.pairs: list[ImagePair] = []
        self.labelled: list[ImagePair] = []
        reader, files = PairReader(detector, keypoints), find_pairs(folder)
        if not any(each.is_planar for each in files):
            raise DoapError(f"{folder}: all pairs are known by labelled points; AP takes a homography")
        for number, each in enumerate(files, 1):
            pair = reader.open(each)
            if each.is_planar:
                pair.partners  # noqa: B018 (found here, where progress is told)
            (self.pairs if each.is_planar else self.labelled).append(pair)
            progress(number, len(files))
        self._views = _different([v for pair in [*self.pairs, *self.labelled] for v in (pair.first, pair.second)])
        self._cut: Callable[[int, float], NDArray[np.uint8]] = cache(
            lambda size, extent: np.concatenate(
                [extract_patches(view.image, view.frames, size, extent, device) for view in self._views]
            )
        )

    def measure(self, model: Descriptor) -> dict[str, float]:
        """Under "pairs" the AP, the mean over the extents, then that at each, if there are several; and "right"."""
        fast = fastest(model)
        found = {extent: self.at(fast, extent) for extent in self.extents}
        measured = {"pairs": float(np.mean([judged.ap for judged in found.values()]))}
        if len(found) > 1:
            measured |= {f"pairs at {extent or 'own'}": judged.ap for extent, judged in found.items()}
        right = [judged.right for judged in found.values() if judged.right is not None]
        return measured | ({"right": float(np.mean(right))} if right else {})

    def at(self, model: Descriptor, extent: float | None) -> PairsScore:
        """A model as it is, at one extent; None is its own for the detector."""
        described = describe(self._cut(model.input_size, extent or model.extent_for(self.detector)), model)
        ends = np.cumsum([len(view.frames) for view in self._views])
        of = dict(zip(map(id, self._views), np.split(described, ends[:-1]), strict=True))
        ap = [pair_average_precision(pair, of[id(pair.first)], of[id(pair.second)]) for pair in self.pairs]
        right = [_right(pair, of[id(pair.first)], of[id(pair.second)]) for pair in self.labelled]
        return PairsScore(100 * float(np.mean(ap)), 100 * float(np.mean(right)) if right else None)


def _right(pair: ImagePair, first: Descriptors, second: Descriptors) -> float:
    """The share of mutual matches that the truth does not contradict; mutual ones there always are."""
    indices, _ = mutual_nearest(first, second)
    points = pair.first.frames[indices[:, 0], :, 2], pair.second.frames[indices[:, 1], :, 2]
    return float((pair.truth.errors(*points) <= CORRECT_PIXELS).mean())


def _different(views: Sequence[View]) -> list[View]:
    """Each view once: an image that is in several pairs is described once."""
    return list({id(view): view for view in views}.values())
