"""Read image pairs and detect their frames."""

from functools import lru_cache
from pathlib import Path

from doap.datasets.official.image_sequences import read_homography
from doap.datasets.sets.image_pairs import PairFiles, read_points
from doap.errors import DoapError
from doap.evaluation.image_pairs.scoring import ImagePair, View
from doap.geometry.ground_truth import GroundTruth, from_homography, from_points
from doap.geometry.robust import Geometry
from doap.images.detectors import DETECTORS
from doap.images.reading import read_grey

VIEWS_KEPT = 4  # images in memory: those of a pair, and a reference that comes again


class PairReader:
    """Reads pairs and detects frames; an image that comes again soon is read once.

    Args:
        detector: of `DETECTORS`.
        keypoints: the strongest of each image.
        geometry: what labelled points are taken to share.
    """

    def __init__(self, detector: str, keypoints: int, geometry: Geometry = "fundamental") -> None:
        self.detector = detector
        self.keypoints = keypoints
        self.geometry: Geometry = geometry
        self._view = lru_cache(VIEWS_KEPT)(self._read_view)

    def open(self, files: PairFiles) -> ImagePair:
        """The pair; a DoapError for a file that cannot be read, or an image without keypoints."""
        first, second = self._view(files.first), self._view(files.second)
        return ImagePair(files.sequence, files.name, first, second, self._truth(files, first.image.shape))

    def _read_view(self, path: Path) -> View:
        image = read_grey(path)
        frames = DETECTORS[self.detector](image, self.keypoints)
        if not len(frames):
            raise DoapError(f"{path}: no keypoint found by {self.detector}; is it flat or tiny?")
        return View(image, frames)

    def _truth(self, files: PairFiles, shape: tuple[int, ...]) -> GroundTruth:
        if not isinstance(files.truth, Path):
            return from_homography(files.truth, shape)
        if files.is_planar:
            return from_homography(read_homography(files.truth), shape)
        return from_points(read_points(files.truth), self.geometry, str(files.truth))
