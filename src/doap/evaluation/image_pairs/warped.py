"""Matching of photos with warped copies of themselves, for which the ground truth is exact.

Each photo gets several copies, each under its own homography (rotation, zoom, tilt, shift) and photometric change
(gamma, contrast, gradient, blur, noise). DoG keypoints are detected in photo and copy alike; all descriptors describe
the same ones. Each keypoint of the photo retrieves its nearest neighbour in the copy; the retrieved pairs are ranked by
distance, and Average Precision is computed over that list, as in the Oxford protocol.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from doap.choices import DEFAULT_DETECTOR
from doap.errors import DoapError, inflect
from doap.evaluation.harness.methods import Method
from doap.evaluation.harness.result import Result, Score
from doap.evaluation.harness.table import Row, Table
from doap.evaluation.image_pairs.scoring import ImagePair, View, score_all
from doap.evaluation.image_pairs.tables import compare_all, tests_tables
from doap.evaluation.metrics import significance
from doap.evaluation.metrics.average_precision import average_precision
from doap.features import FrameDescriber
from doap.geometry.ellipses import scales
from doap.geometry.ground_truth import from_homography
from doap.images.detectors import DETECTORS
from doap.images.extraction import Pyramid, to_bytes
from doap.images.frames import transform_frames
from doap.images.reading import find_photos, read_grey
from doap.images.warping import random_homography, relight, warp
from doap.matching.nearest import nearest
from doap.types import Grey, StepProgress, no_step_progress

MAX_SIDE = 640  # larger photos are scaled down, which keeps runs short
CORRECT_PIXELS = 3.0
CORRECT_SCALE = 1.5


@dataclass(frozen=True)
class Warped:
    """Matching of photos with warped copies; a `Benchmark`.

    A photo that cannot be read, or has no keypoint in itself or in all of its copies, is left out and listed in the
    settings of the result under "left out".

    Attributes:
        data: Photos, or folders of photos.
        copies: Number of warped copies per photo.
        keypoints: Number of strongest keypoints per image.
        seed: Seed of the homographies and photometric changes.
    """

    name: ClassVar[str] = "warped"

    data: Sequence[Path]
    copies: int = 5
    keypoints: int = 1000
    seed: int = 0

    def evaluate(self, methods: Sequence[Method], progress: StepProgress = no_step_progress) -> Result:
        """Match all photos with their copies by all methods; see `Benchmark.evaluate`.

        Raises:
            DoapError: If no photo can be used.
        """
        paths, left_out = find_photos(list(self.data)), list[str]()
        scores = score_all(self._pairs(paths, left_out), len(paths) * self.copies, methods, progress, score_warped)
        if not scores:
            raise DoapError("; ".join(left_out))
        return Result(
            benchmark=self.name,
            settings={
                "data": [str(path) for path in self.data],
                "copies": self.copies,
                "keypoints": self.keypoints,
                "seed": self.seed,
                "statistics": significance.RULE,
                "left out": left_out,
            },
            methods=[method.metadata() for method in methods],
            scores=scores,
            comparisons=compare_all(scores),
        )

    def _pairs(self, paths: Sequence[Path], left_out: list[str]) -> Iterator[ImagePair]:
        """Yield the pairs, those of one photo in memory at a time; append the errors of other photos to `left_out`."""
        for index, path in enumerate(paths):
            try:
                pairs = make_pairs(str(path), read_grey(path), self.copies, self.keypoints, self.seed + index)
            except DoapError as error:
                left_out.append(str(error))
                continue
            yield from pairs
            del pairs  # before the next are made

    @staticmethod
    def tables(result: Result) -> list[Table]:
        """Return mAP and correct neighbours, and the best descriptor against the others."""
        return [warped_table(result), *(tests_tables(result) if result.comparisons else [])]

    @staticmethod
    def draw(result: Result, path: Path) -> None:
        """Draw the mAP of each descriptor as a bar."""
        from doap.evaluation.harness.figures import draw_bars

        draw_bars(mean_scores(result.scores), path)


def make_pairs(name: str, photo: Grey, copies: int, keypoints: int, seed: int) -> list[ImagePair]:
    """Make warped and relit copies of a photo and detect the frames of all images.

    Args:
        name: Name of the photo.
        photo: Photo; scaled down if a side is longer than 640 pixels.
        copies: Number of copies; a copy without keypoints is left out.
        keypoints: Number of strongest keypoints per image.
        seed: Seed of the homographies and photometric changes.

    Raises:
        DoapError: If the photo or all of its copies have no keypoint.
    """
    photo = _scale_down(photo)
    random = np.random.default_rng(seed)
    light = torch.Generator().manual_seed(seed)
    pyramid = Pyramid(photo)
    first = View(photo, DETECTORS[DEFAULT_DETECTOR](photo, keypoints))
    if not len(first.frames):
        raise DoapError(f"{name}: no keypoint found; is it flat or tiny?")
    pairs = []
    for index in range(copies):
        homography = random_homography(photo.shape, random)
        copy = relight(warp(pyramid, homography), light)
        second = View(copy, DETECTORS[DEFAULT_DETECTOR](copy, keypoints))
        if len(second.frames):
            ground_truth = from_homography(homography, photo.shape)
            pairs.append(ImagePair(name, f"{name}/{index}", first, second, ground_truth))
    if not pairs:
        raise DoapError(f"{name}: no keypoint found in its warped copies; is it nearly flat or tiny?")
    return pairs


def correspondence_matrix(pair: ImagePair) -> NDArray[np.bool_]:
    """Return which frames of photo and copy show the same point at the same scale.

    Frame j of the copy corresponds to frame i of the photo if its centre is within 3 pixels, and its scale within a
    factor of 1.5, of frame i transformed by the homography. Unlike in `correspondences`, a frame may correspond to
    several others.

    Returns:
        (N, K) bool.
    """
    expected = transform_frames(pair.first.frames, pair.ground_truth.matrix)
    distances = np.linalg.norm(expected[:, None, :, 2] - pair.second.frames[None, :, :, 2], axis=2)
    ratios = np.abs(np.log(scales(expected)[:, None] / scales(pair.second.frames)[None]))
    return np.asarray((distances <= CORRECT_PIXELS) & (ratios <= np.log(CORRECT_SCALE)))


def score_warped(pair: ImagePair, describer: FrameDescriber) -> Score:
    """Score one descriptor on one photo and copy.

    Returns:
        Row with the columns descriptor, sequence (the photo), pair, ap and correct neighbours: of the keypoints with a
        correspondence, the rate whose nearest neighbour is one. Both in percent.
    """
    first, second = (describer.describe_frames(view.image, view.frames) for view in (pair.first, pair.second))
    visible = pair.common[0]
    correspondences = correspondence_matrix(pair)[visible]
    neighbours, distances = nearest(first[visible], second)
    correct = correspondences[np.arange(len(visible)), neighbours]
    positives = int(correspondences.any(1).sum())
    return {
        "descriptor": describer.name,
        "sequence": pair.sequence,
        "pair": pair.name,
        "ap": 100 * average_precision(distances, correct, positives),
        "correct neighbours": 100 * float(correct.sum() / max(positives, 1)),
    }


def mean_scores(scores: Sequence[Score]) -> list[dict[str, str | int | float]]:
    """Average the rows of `score_warped` over pairs, in percent.

    Returns:
        One row per descriptor, best mAP first, with the keys descriptor, mAP, correct neighbours and pairs.
    """
    rows: list[dict[str, str | int | float]] = []
    for name in dict.fromkeys(str(row["descriptor"]) for row in scores):
        own = [row for row in scores if row["descriptor"] == name]
        rows.append(
            {
                "descriptor": name,
                "mAP": float(np.mean([float(row["ap"] or 0) for row in own])),
                "correct neighbours": float(np.mean([float(row["correct neighbours"] or 0) for row in own])),
                "pairs": len(own),
            }
        )
    return sorted(rows, key=lambda row: -float(row["mAP"]))


def warped_table(result: Result) -> Table:
    """Return mAP, correct neighbours and descriptor size, best mAP first."""
    sizes = {str(method["name"]): int(method["bytes"]) for method in result.methods}
    names = {str(row["pair"]) for row in result.scores}
    photos = {name.rpartition("/")[0] for name in names}
    pairs = f"{len(names)} {inflect(len(names), 'pair')} of {len(photos)} {inflect(len(photos), 'photo')}"
    note = f"{pairs}, up to {result.settings['keypoints']} keypoints per image"
    return mean_table(mean_scores(result.scores), sizes, note)


def mean_table(rows: Sequence[Mapping[str, str | int | float]], sizes: Mapping[str, int], note: str = "") -> Table:
    """Return the rows of `mean_scores` as a table, with the size of each descriptor in bytes."""
    cells = [
        (
            str(row["descriptor"]),
            f"{row['mAP']:.1f}",
            f"{row['correct neighbours']:.1f}",
            str(sizes[str(row["descriptor"])]),
        )
        for row in rows
    ]
    return Table(("descriptor", "mAP %", "correct neighbours %", "bytes"), tuple(map(Row, cells)), note=note)


def _scale_down(photo: Grey) -> Grey:
    """Scale a photo down to a longer side of 640 pixels."""
    height, width = photo.shape
    ratio = max(height, width) / MAX_SIDE
    if ratio <= 1:
        return photo
    size = max(1, round(height / ratio)), max(1, round(width / ratio))
    homography = np.diag([1 / ratio, 1 / ratio, 1.0])
    return to_bytes(warp(Pyramid(photo), homography, size))[0].numpy()
