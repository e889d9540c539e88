"""Image matching in the Oxford sequences: detection, extraction, description and matching, as in the paper.

A sequence has six images; the first is matched with each of the others. AP of a sequence is the mean over its five
pairs, mAP the mean over sequences. There are two protocols: "doap", our own rule (`scoring`, `correspondences`), and
"vlbenchmarks", that of VLBenchmarks' descriptor matching (`vlbenchmarks`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, get_args

from doap.choices import FrameShape, OxfordProtocol
from doap.datasets.official.image_sequences import find_sequences
from doap.datasets.sets.image_pairs import PairFiles, sequence_pairs
from doap.errors import DoapError, check_choice
from doap.evaluation.harness.methods import Method
from doap.evaluation.harness.result import Result
from doap.evaluation.harness.table import Table
from doap.evaluation.image_pairs import correspondences
from doap.evaluation.image_pairs.reading import PairReader
from doap.evaluation.image_pairs.scoring import PairScorer, score_all, score_pair
from doap.evaluation.image_pairs.sequences import PAPER_SEQUENCES
from doap.evaluation.image_pairs.tables import compare_all, oxford_tables
from doap.evaluation.image_pairs.vlbenchmarks import VlbenchmarksScorer
from doap.evaluation.metrics import significance
from doap.types import StepProgress, no_step_progress

PAPER_DETECTOR, PAPER_EXTENT = "harris-affine", 3.0


@dataclass(frozen=True)
class Oxford:
    """Matching in the Oxford sequences; a `Benchmark`. The default detector and extent are those of the paper.

    Attributes:
        data: Folder of sequences, in the layout of Oxford or HPatches.
        detector: Name of a detector in `DETECTORS`.
        extent: Extent with which the methods were opened; None if each uses its own.
        keypoints: Number of strongest keypoints per image; None for all.
        protocol: "doap" or "vlbenchmarks".
        overlap_error: Overlap error of corresponding frames in the protocol "vlbenchmarks"; None for 0.5.
        frames: Shape of the frames: "detected", "upright", "baumberg" or "learned".

    Raises:
        DoapError: If there is no such protocol, or the overlap error is not between 0 and 1 or for another protocol.
    """

    name: ClassVar[str] = "oxford"

    data: Path
    detector: str = PAPER_DETECTOR
    extent: float | None = PAPER_EXTENT
    keypoints: int | None = 1000
    protocol: OxfordProtocol = "doap"
    overlap_error: float | None = None
    frames: FrameShape = "detected"

    def __post_init__(self) -> None:
        check_choice("protocol", self.protocol, get_args(OxfordProtocol))
        if self.overlap_error is not None and self.protocol != "vlbenchmarks":
            raise DoapError("overlap error: only the protocol vlbenchmarks has one to choose")
        if self.overlap_error is not None and not 0 < self.overlap_error < 1:
            raise DoapError(f"overlap error: must be between 0 and 1, not {self.overlap_error:g}")

    def evaluate(self, methods: Sequence[Method], progress: StepProgress = no_step_progress) -> Result:
        """Match all pairs with all methods; see `Benchmark.evaluate`."""
        reader = PairReader(self.detector, self.keypoints, frames=self.frames)
        pairs = find_oxford(self.data)
        score, rule = self._scorer()
        chosen = {"overlap error": self._overlap_error} if self.protocol == "vlbenchmarks" else {}
        scores = score_all(map(reader.open, pairs), len(pairs), methods, progress, score)
        return Result(
            benchmark=self.name,
            settings={
                "data": str(self.data),
                "detector": self.detector,
                "extent": format_extent(self.extent),
                "keypoints": "all" if self.keypoints is None else self.keypoints,
                "frames": self.frames,
                "protocol": self.protocol,
                **chosen,
                "correspondences": rule,
                "statistics": significance.RULE,
                "paper's six": PAPER_SEQUENCES,
            },
            methods=[method.metadata() for method in methods],
            scores=scores,
            comparisons=compare_all(scores),
        )

    def _scorer(self) -> tuple[PairScorer, str]:
        """Return the function that scores a pair by the protocol, and its rule in words."""
        if self.protocol == "doap":
            return score_pair, correspondences.RULE
        scorer = VlbenchmarksScorer(self._overlap_error)
        return scorer, scorer.rule

    @property
    def _overlap_error(self) -> float:
        return self.overlap_error or correspondences.OVERLAP_ERROR

    @staticmethod
    def tables(result: Result) -> list[Table]:
        """Return AP by sequence, means over pairs, and paired tests."""
        return oxford_tables(result)

    @staticmethod
    def draw(result: Result, path: Path) -> None:
        """Draw AP by sequence as bars."""
        from doap.evaluation.image_pairs.oxford_figure import draw_oxford

        draw_oxford(result, path)


def find_oxford(folder: Path) -> list[PairFiles]:
    """Find the pairs of all sequences in a folder and its subfolders, in the layout of Oxford or HPatches.

    Raises:
        DoapError: If a sequence is incomplete, two have the same name, or there is none.
    """
    sequences = find_sequences(folder)
    names = [sequence.name for sequence in sequences]
    for name in names:
        if names.count(name) > 1:
            raise DoapError(f"{folder}: two sequences are called {name}; give the folder of one")
    return [pair for sequence in sequences for pair in sequence_pairs(sequence, sequence.name)]


def format_extent(extent: float | None) -> str:
    """Format an extent for the settings of a result; None is "own"."""
    return "own" if extent is None else f"{extent:g}"
