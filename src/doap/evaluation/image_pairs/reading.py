"""Read image pairs and detect their frames."""

from functools import lru_cache
from pathlib import Path

from doap.choices import FrameShape, Geometry
from doap.datasets.official.image_sequences import read_homography
from doap.datasets.sets.image_pairs import PairFiles, read_points
from doap.errors import DoapError, check_choice
from doap.evaluation.image_pairs.scoring import ImagePair, View
from doap.geometry.ground_truth import GroundTruth, from_homography, from_points
from doap.images.detection import CustomDetector, detect, detector_name
from doap.images.detectors import DETECTORS
from doap.images.reading import read_grey

MAX_VIEWS = 4  # images in memory: those of a pair, and a reference that is used again


class PairReader:
    """Reads pairs and detects frames; the last images are kept for the next pairs.

    Args:
        detector: Name of a detector in `DETECTORS`, or a function, see `doap.images.detection.detect`.
        keypoints: Number of strongest keypoints per image; None for all.
        geometry: Geometry to fit to labelled points.
        frames: Shape of the frames, see `doap.images.detection.detect`; those of "baumberg" and "learned" are oriented.

    Raises:
        DoapError: If there is no such detector.
    """

    def __init__(
        self,
        detector: str | CustomDetector,
        keypoints: int | None,
        geometry: Geometry = "fundamental",
        frames: FrameShape = "detected",
    ) -> None:
        if isinstance(detector, str):
            check_choice("detector", detector, DETECTORS)
        self.detector = detector
        self.keypoints = keypoints
        self.geometry: Geometry = geometry
        self.frames: FrameShape = frames
        self._view = lru_cache(MAX_VIEWS)(self._read_view)

    def open(self, files: PairFiles) -> ImagePair:
        """Read a pair and detect its frames.

        Raises:
            DoapError: If a file cannot be read, or an image has no keypoint.
        """
        first, second = self._view(files.first), self._view(files.second)
        return ImagePair(files.sequence, files.name, first, second, self._ground_truth(files, first.image.shape))

    def _read_view(self, path: Path) -> View:
        image = read_grey(path)
        frames = detect(image, self.detector, self.frames, self.keypoints).frames
        if not len(frames):
            raise DoapError(f"{path}: no keypoint found by {detector_name(self.detector)}; is it flat or tiny?")
        return View(image, frames)

    def _ground_truth(self, files: PairFiles, shape: tuple[int, ...]) -> GroundTruth:
        if not isinstance(files.ground_truth, Path):
            return from_homography(files.ground_truth, shape)
        if files.is_planar:
            return from_homography(read_homography(files.ground_truth), shape)
        return from_points(read_points(files.ground_truth), self.geometry, str(files.ground_truth))
