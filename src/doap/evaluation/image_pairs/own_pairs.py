"""Image matching on the user's pairs, with homographies or labelled points as ground truth."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from doap.choices import DEFAULT_DETECTOR, Geometry
from doap.datasets.sets.image_pairs import PairFiles, find_pairs
from doap.errors import DoapError, inflect
from doap.evaluation.harness.methods import Method
from doap.evaluation.harness.result import Result
from doap.evaluation.harness.table import Table
from doap.evaluation.image_pairs import correspondences
from doap.evaluation.image_pairs.oxford import format_extent
from doap.evaluation.image_pairs.reading import PairReader
from doap.evaluation.image_pairs.scoring import (
    CORRECT_PIXELS,
    ImagePair,
    describe_pair,
    match_errors,
    match_pair,
    score_all,
)
from doap.evaluation.image_pairs.tables import compare_all, pairs_tables
from doap.evaluation.metrics import significance
from doap.features import FrameDescriber
from doap.features.drawing import draw_matches
from doap.types import StepProgress, no_step_progress

CORRECT_MATCH = (
    "a correspondence; in scenes known by labelled points alone, one within "
    f"{CORRECT_PIXELS:g} px of its epipolar lines, the mean of both images"
)
CORRECT_GEOMETRY = f"mean error at the corners or labelled points under {CORRECT_PIXELS:g} px"


@dataclass(frozen=True)
class ImagePairs:
    """Matching of image pairs in a folder; a `Benchmark`.

    A pair that cannot be read is left out and listed in the settings of the result under "left out".

    Attributes:
        data: Folder of pairs, see `doap.datasets.sets.image_pairs`.
        detector: Name of a detector in `DETECTORS`.
        extent: Extent with which the methods were opened; None if each uses its own.
        keypoints: Number of strongest keypoints per image.
        geometry: Geometry to fit to labelled points: "fundamental" for any scene, "homography" for a plane.
        drawings: Folder for pictures of the first method's verified matches, one per pair; None draws nothing.
    """

    name: ClassVar[str] = "pairs"

    data: Path
    detector: str = DEFAULT_DETECTOR
    extent: float | None = None
    keypoints: int = 2000
    geometry: Geometry = "fundamental"
    drawings: Path | None = None

    def evaluate(self, methods: Sequence[Method], progress: StepProgress = no_step_progress) -> Result:
        """Match all pairs with all methods; see `Benchmark.evaluate`.

        Raises:
            DoapError: If no pair can be read.
        """
        pair_files, left_out = find_pairs(self.data), list[str]()
        scores = score_all(self._open(pair_files, methods[0], left_out), len(pair_files), methods, progress)
        if not scores:
            raise DoapError(left_out[0] if len(left_out) == 1 else f"no pair can be read: {'; '.join(left_out)}")
        return Result(
            benchmark=self.name,
            settings={
                "data": str(self.data),
                "detector": self.detector,
                "extent": format_extent(self.extent),
                "keypoints": self.keypoints,
                "geometry of labelled points": self.geometry,
                "correspondences": correspondences.RULE,
                "correct match": CORRECT_MATCH,
                "correct geometry": CORRECT_GEOMETRY,
                "statistics": significance.RULE,
                "left out": left_out,
            },
            methods=[method.metadata() for method in methods],
            scores=scores,
            comparisons=compare_all(scores),
        )

    def _open(self, pair_files: Sequence[PairFiles], method: Method, left_out: list[str]) -> Iterator[ImagePair]:
        """Yield the pairs that can be read, drawn if requested; append the errors of the others to `left_out`."""
        reader = PairReader(self.detector, self.keypoints, self.geometry)
        used_names = set[str]()
        for number, files in enumerate(pair_files, 1):
            try:
                pair = reader.open(files)
            except DoapError as error:
                left_out.append(str(error))
                continue
            if self.drawings:
                draw_pair_matches(pair, method, self.drawings / f"{_free_name(pair, number, used_names)}.png")
            yield pair

    @staticmethod
    def tables(result: Result) -> list[Table]:
        """Return means over pairs, rates of correct matches and geometries, and paired tests."""
        return pairs_tables(result)

    @staticmethod
    def draw(result: Result, path: Path) -> None:
        """Draw mean AP, correct matches by threshold and correct geometries."""
        from doap.evaluation.image_pairs.pairs_figure import draw_pairs

        draw_pairs(result, path)


def draw_pair_matches(pair: ImagePair, describer: FrameDescriber, path: Path) -> None:
    """Draw the verified matches of one descriptor: green within 3 pixels of the ground truth, otherwise red."""
    matches = match_pair(pair, *describe_pair(pair, describer))
    correct = (match_errors(pair, matches) <= CORRECT_PIXELS)[matches.inliers]
    verified = matches.indices[matches.inliers]
    title = (
        f"{pair.sequence} {pair.name}, {describer.name}: {len(verified)} verified of {len(matches)} mutual "
        f"{inflect(len(matches), 'match', 'matches')}, "
        f"{int(correct.sum())} correct within {CORRECT_PIXELS:g} pixels"
    )
    points = pair.first.frames[verified[:, 0], :, 2], pair.second.frames[verified[:, 1], :, 2]
    draw_matches(pair.first.image, pair.second.image, *points, title, path, correct)


def _free_name(pair: ImagePair, number: int, used_names: set[str]) -> str:
    """Return the file name of a pair, with its number if another pair has that name; add it to those taken."""
    name = _file_name(pair)
    while name.lower() in used_names:  # some file systems ignore case
        name = f"{name}-{number}"
    used_names.add(name.lower())
    return name


def _file_name(pair: ImagePair) -> str:
    """Return a file name made of the names of sequence and pair, once if they are the same."""
    words = dict.fromkeys((pair.sequence, pair.name))
    return re.sub(r"[^\w.]+", "-", " ".join(words)).strip("-.")
