"""Mean AP over the image pairs of a folder, for many models: what does not hang on the model is done once."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.errors import DoapError
from doap.evaluation.image_pairs import ImagePair, View, pair_average_precision
from doap.evaluation.pairs import PairReader, find_pairs
from doap.networks.descriptor import Descriptor, describe
from doap.networks.fast import fastest
from doap.patches.source import Progress, no_progress
from doap.photos.extract import extract_patches


class PairsJudge:
    """Judges models by the AP that `doap eval pairs` has, and by nothing else of it.

    Images are read, frames and their correspondences found at the start, and patches cut once a size and extent.
    Pairs that are known by labelled points are left out: nobody knows how many right matches they have.

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
        reader = PairReader(detector, keypoints)
        files = [each for each in find_pairs(folder) if each.is_planar]
        if not files:
            raise DoapError(f"{folder}: all pairs are known by labelled points; AP takes a homography")
        for number, each in enumerate(files, 1):
            pair = reader.open(each)
            pair.partners  # noqa: B018 (found here, where progress is told)
            self.pairs.append(pair)
            progress(number, len(files))
        self._views = _different([view for pair in self.pairs for view in (pair.first, pair.second)])
        self._cut: Callable[[int, float], NDArray[np.uint8]] = cache(
            lambda size, extent: np.concatenate(
                [extract_patches(view.image, view.frames, size, extent, device) for view in self._views]
            )
        )

    def average_precision(self, model: Descriptor) -> dict[str, float]:
        """Mean AP in percent: under "pairs" the mean over the extents, then that at each, if there are several."""
        fast = fastest(model)
        values = {extent: self.at(fast, extent) for extent in self.extents}
        each = {f"pairs at {extent or 'own'}": value for extent, value in values.items()}
        return {"pairs": float(np.mean(list(values.values()))), **(each if len(each) > 1 else {})}

    def at(self, model: Descriptor, extent: float | None) -> float:
        """Mean AP in percent of a model as it is, at one extent; None is its own for the detector."""
        described = describe(self._cut(model.input_size, extent or model.extent_for(self.detector)), model)
        ends = np.cumsum([len(view.frames) for view in self._views])
        of = dict(zip(map(id, self._views), np.split(described, ends[:-1]), strict=True))
        found = [pair_average_precision(pair, of[id(pair.first)], of[id(pair.second)]) for pair in self.pairs]
        return 100 * float(np.mean(found))


def _different(views: Sequence[View]) -> list[View]:
    """Each view once: an image that is in several pairs is described once."""
    return list({id(view): view for view in views}.values())
