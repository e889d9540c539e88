"""Patch verification on UBC Phototour: FPR95 on the 100,000 official pairs of a scene (paper, "UBC Phototour")."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.datasets.official.opening import open_any
from doap.datasets.official.phototour import INFO, PAIRS, read_pairs, source_files
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.evaluation.harness.methods import Method, Selection
from doap.evaluation.harness.result import Result, Score
from doap.evaluation.metrics.average_precision import false_positive_rate_at_recall
from doap.evaluation.metrics.roc import recalls_at, roc, roc_area
from doap.networks.descriptor import Descriptor, describe
from doap.networks.registry import find_card
from doap.types import Descriptors, Progress, no_progress

SCENES = ("liberty", "notredame", "yosemite")
AT_ONCE = 4096  # pairs compared
RULE = (
    "FPR95: the threshold is the smallest distance that recalls 95 % of the matching pairs; every other pair at or "
    "below it counts, so ties gain nothing. Euclidean distances in float64; Hamming distances of bits"
)
CURVE_RATES = np.geomspace(1e-4, 1, 81)  # false positive rates at which the recall is kept for the figure


@dataclass(frozen=True)
class PairTest:
    """A patch set and pairs of its patches to tell apart.

    Attributes:
        name: of the set.
        patches: all of them; only those in pairs are read.
        first: (P,) indices of patches.
        second: (P,) likewise.
        same: (P,) bool, whether both show the same point.
    """

    name: str
    patches: PatchSet
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    same: NDArray[np.bool_]

    @cached_property
    def selection(self) -> Selection:
        """The patches in pairs, each once."""
        return Selection(self.patches, np.union1d(self.first, self.second))

    def distances(self, descriptors: Descriptors) -> NDArray[np.float64]:
        """(P,) of the pairs, from the descriptors of `selection`: Hamming of bits, else Euclidean in float64."""
        used = np.asarray(self.selection.indices)
        first, second = (np.searchsorted(used, patches) for patches in (self.first, self.second))
        parts = [
            pair_distances(descriptors[first[start : start + AT_ONCE]], descriptors[second[start : start + AT_ONCE]])
            for start in range(0, len(first), AT_ONCE)
        ]
        return np.concatenate(parts)


def open_test(folder: Path, progress: Progress = no_progress) -> PairTest:
    """The official test of a Phototour folder; its patches are converted the first time, see `official`.

    Args:
        folder: with the sheets, info.txt and m50_100000_100000_0.txt.
        progress: told the pieces done of a conversion, and how many there are.

    Raises:
        DoapError: one line that names the file and the error.
    """
    if not source_files(folder):
        raise DoapError(f"{folder}: not an official folder of Phototour ({INFO} and *.bmp)")
    patches = open_any(folder, progress)
    first, second, same = read_pairs(folder / PAIRS, len(patches))
    if same.all() or not same.any():
        raise DoapError(f"{folder / PAIRS}: needs pairs that match and pairs that do not; get the official data again")
    return PairTest(folder.absolute().name, patches, first, second, same)


def find_scenes(folder: Path) -> dict[str, Path]:
    """The official folders of scenes: the folder itself, or those in it, by scene.

    Raises:
        DoapError: if there is none, one is not named after its scene, or two are of one scene.
    """
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    official = [folder] if source_files(folder) else [each for each in inside if source_files(each)]
    if not official:
        raise DoapError(f"{folder}: not an official folder of Phototour ({INFO} and *.bmp), and none lies in it")
    scenes: dict[str, Path] = {}
    for each in official:
        scene = scene_of(each.absolute().name)
        if not scene:
            names = ", ".join(SCENES)
            raise DoapError(f"{each}: name it after its scene ({names}): models are not tested where they were trained")
        if scene in scenes:
            raise DoapError(f"{folder}: {scenes[scene].name} and {each.name} are both {scene}; give one of them")
        scenes[scene] = each
    return {scene: scenes[scene] for scene in SCENES if scene in scenes}


def scene_of(name: str) -> str:
    """The scene that a name ends in, as "phototour-liberty" and "doap-liberty" do; empty if in none.

    Example:
        >>> scene_of("phototour-liberty"), scene_of("mine")
        ('liberty', '')
    """
    found = re.search(rf"(?:^|[-_. ])({'|'.join(SCENES)})$", name.lower())
    return found[1] if found else ""


def fpr95(model: Descriptor, test: PairTest | Path, progress: Progress = no_progress) -> float:
    """False positive rate at 95 % recall, in [0, 1]; ties as in `false_positive_rate_at_recall`.

    Real-valued descriptors are compared by Euclidean distance, binary ones by Hamming distance.

    Args:
        model: what to judge.
        test: from `open_test`, or the folder of one.
        progress: told the patches described, and how many there are: those in pairs.
    """
    opened = open_test(test) if isinstance(test, Path) else test
    parts = []
    for part, pixels in opened.selection.chunks():
        parts.append(describe(pixels, model))
        progress(part.stop, len(opened.selection))
    return false_positive_rate_at_recall(opened.distances(np.concatenate(parts)), opened.same)


def trained_on(method: Method) -> str:
    """The scene that a model was trained on, by its card or its name; empty for any other training, or none."""
    card = find_card(method.given)
    named = scene_of(Path(card.origin.data).name) if card else ""
    return named or scene_of(method.model.name)


def evaluate(
    tests: dict[str, PairTest],
    methods: Sequence[Method],
    data: str,
    progress: Callable[[str, int, int], None] = lambda _doing, _done, _total: None,
) -> Result:
    """Every method on every scene that it was not trained on.

    Args:
        tests: by scene.
        methods: what to judge.
        data: where the tests lie, for the record.
        progress: told what is described, how many patches are done, and how many there are.

    Raises:
        DoapError: if every method was trained on the only scene there is.
    """
    scores: list[Score] = []
    curves: list[dict[str, Any]] = []
    for scene, test in tests.items():
        for method in methods:
            source = trained_on(method)
            if source == scene:
                continue
            found = method.describe_patches(test.selection, partial(progress, f"{method.name} on {scene}"))
            distances = test.distances(found)
            rates, recalls = roc(distances, test.same)
            condition = {"descriptor": method.name, "trained on": source, "test": scene}
            rate = 100 * false_positive_rate_at_recall(distances, test.same)
            scores.append({**condition, "fpr95": rate, "auc": 100 * roc_area(rates, recalls)})
            points = recalls_at(rates, recalls, CURVE_RATES).round(6).tolist()
            curves.append({**condition, "false positive rate": CURVE_RATES.round(8).tolist(), "recall": points})
    if not scores:
        raise DoapError(f"{data}: every model was trained on {', '.join(tests)}; give another scene to test on")
    return Result(
        benchmark="phototour",
        settings={
            "data": data,
            "pairs": {scene: len(test.same) for scene, test in tests.items()},
            "rule": RULE,
        },
        methods=[{**each.about(), "trained on": trained_on(each)} for each in methods],
        scores=scores,
        curves=curves,
    )


def pair_distances(first: Descriptors, second: Descriptors) -> NDArray[np.float64]:
    """(P,) distances of descriptors, row by row: Hamming of (P, bits / 8) uint8, else Euclidean of (P, d)."""
    if first.dtype == np.uint8:
        return np.asarray(np.unpackbits(np.bitwise_xor(first, second), axis=1).sum(1), np.float64)
    # In float64, so that the order of close pairs does not hang on rounding.
    return np.asarray(np.linalg.norm(first.astype(np.float64) - second, axis=1))
