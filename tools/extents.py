"""Measure the best extent of models per detector, by AP on image pairs, and write it on their cards.

    python tools/extents.py --pairs pairs/val -o docs/results/extents.json          # all shipped models
    python tools/extents.py doap-128 doap-256b --detectors dog --pairs pairs/val -o extents.json --device cuda

The pairs select the extents, so they must not be used for testing. They have the format of `doap eval pairs`. For pairs
with labelled points the rate of correct matches is measured as well, but AP decides. The grid has steps of √2. The
search starts at the extent of the training and moves to the better neighbour until both neighbours are worse.

The result is written after each measurement. Measurements of the same weights that it already contains, for any models,
are not repeated, so an interrupted search can be resumed. A result records the content of its pairs and the number of
keypoints; one with others, or without a record, is refused.
"""

import argparse
import hashlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress as ProgressBar
from rich.progress import TaskID

import doap
from doap.cli.console import choose_device, counting_bar
from doap.datasets.sets.image_pairs import find_pairs
from doap.errors import DoapError
from doap.evaluation.harness.methods import to_inference
from doap.evaluation.harness.result import Result, Score, read_result
from doap.evaluation.image_pairs.evaluator import PairsEvaluator, PairsScore
from doap.networks.card import Card, write_card
from doap.networks.registry import find_card, find_weights, load
from doap.types import Progress

DETECTORS = ("dog", "harris-affine")
EXTENTS = (3.0, 4.5, 6.0, 8.5, 12.0, 17.0, 24.0, 34.0, 48.0)
FIGURE = re.compile(r"AP % on (\d+ )?validation pairs")  # on cards: the beginning of the figures that are written here
PAIRS_SHA256 = "pairs sha256"  # setting of a result: the content of the pairs


class Measurements:
    """Measured scores, written to a file after each one.

    Args:
        output: File of the result; its scores of models whose weights are still shipped are reused.
        pairs: Folder of image pairs.
        keypoints: Number of strongest keypoints per image.

    Raises:
        DoapError: If the file has scores of other pairs or keypoints, or does not record its pairs.
    """

    def __init__(self, output: Path, pairs: Path, keypoints: int) -> None:
        self.output = output
        self.settings: dict[str, Any] = {"data": pairs.resolve().name, PAIRS_SHA256: hash_pairs(pairs),
                                         "keypoints": keypoints, "extents": list(EXTENTS)}  # fmt: skip
        self.weights: dict[str, str] = {}
        self.scores: list[Score] = []
        if output.exists():
            earlier = read_result(output)
            self._check(earlier, pairs)
            self._reuse(earlier)

    def _check(self, earlier: Result, pairs: Path) -> None:
        difference = ""
        if PAIRS_SHA256 not in earlier.settings:
            difference = "does not record which pairs its scores are of"
        elif earlier.settings[PAIRS_SHA256] != self.settings[PAIRS_SHA256]:
            difference = f"has scores of other pairs than {pairs}"
        elif (keypoints := earlier.settings.get("keypoints")) != self.settings["keypoints"]:
            difference = f"has scores with {keypoints} keypoints, not {self.settings['keypoints']}"
        if difference:
            raise DoapError(f"{self.output}: {difference}; remove it, or write to another file")

    def _reuse(self, earlier: Result) -> None:
        """Keep the scores whose weights are still shipped."""
        for model in earlier.methods:
            card = find_card(model["name"]) if model["name"] in doap.list_models() else None
            if card is not None and card.sha256 == model["sha256"]:
                self.weights[card.name] = card.sha256
        self.scores = [score for score in earlier.scores if score["descriptor"] in self.weights]
        self.settings["pairs"] = earlier.settings["pairs"]

    def curve(self, name: str, detector: str) -> dict[float, float]:
        """Return AP by extent."""
        own = [score for score in self.scores if (score["descriptor"], score["detector"]) == (name, detector)]
        return {float(score["extent"] or 0): float(score["ap"] or 0) for score in own}

    def add(self, card: Card, detector: str, extent: float, score: PairsScore, pairs: int) -> None:
        """Add a score and write the file, sorted by model, detector and extent."""
        correct = None if score.correct is None else round(score.correct, 2)
        self.scores.append({"descriptor": card.name, "detector": detector, "extent": extent,
                            "ap": round(score.ap, 2), "correct": correct})  # fmt: skip
        self.scores.sort(key=lambda s: (str(s["descriptor"]), str(s["detector"]), float(s["extent"] or 0)))
        self.weights[card.name] = card.sha256
        self.settings["pairs"] = pairs
        methods = [{"name": name, "sha256": self.weights[name]} for name in sorted(self.weights)]
        result = Result(benchmark="extents", settings=self.settings, methods=methods, scores=self.scores)
        result.write_json(self.output)


def hash_pairs(folder: Path) -> str:
    """Return the SHA-256 of the names and contents of the files of all pairs, and of homographies without a file."""
    parts = [part for pair in find_pairs(folder) for part in (pair.first, pair.second, pair.ground_truth)]
    hashes = {path: _hash_file(path) for path in {part for part in parts if isinstance(part, Path)}}
    lines = [
        f"{os.path.relpath(part, folder)} {hashes[part]}" if isinstance(part, Path) else part.tobytes().hex()
        for part in parts
    ]
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def _hash_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DoapError(f"{path}: cannot be read ({error.strerror})") from error


def next_extent(curve: dict[float, float], start: float) -> float | None:
    """Return the extent to measure next: at first the one of the grid closest to `start`; None at the maximum."""
    if not curve:
        return min(EXTENTS, key=lambda extent: abs(extent - start))
    index = EXTENTS.index(best_extent(curve))
    neighbours = EXTENTS[max(0, index - 1) : index + 2]
    return next((extent for extent in reversed(neighbours) if extent not in curve), None)


def best_extent(curve: dict[float, float]) -> float:
    """Return the extent with the highest AP, the smallest one on ties."""
    return max(sorted(curve), key=curve.__getitem__)


def search(
    measurements: Measurements,
    cards: Sequence[Card],
    detectors: Sequence[str],
    pairs: Path,
    keypoints: int,
    device: str,
) -> None:
    """Search the best extent of each model with each detector."""
    with counting_bar() as bar:
        for detector in detectors:
            evaluator: PairsEvaluator | None = None
            for card in cards:
                task = bar.add_task(f"{card.name}, {detector}", total=None)
                model = to_inference(load(card.name, device, fast=False))
                while (extent := next_extent(measurements.curve(card.name, detector), card.extent)) is not None:
                    if evaluator is None:
                        reading = bar.add_task("reading pairs", total=None)
                        evaluator = PairsEvaluator(pairs, detector, keypoints, EXTENTS, device, _progress(bar, reading))
                        bar.remove_task(reading)
                    score = evaluator.evaluate_at(model, extent)
                    measurements.add(card, detector, extent, score, len(evaluator.pairs))
                    bar.advance(task)


def _progress(bar: ProgressBar, task: TaskID) -> Progress:
    return lambda done, total: bar.update(task, completed=done, total=total)


def update_card(card: Card, best: dict[str, tuple[float, float]], pairs: int) -> Card:
    """Return the card with new extents and the AP at these as its first figures; other detectors keep theirs.

    Args:
        card: Card of the model.
        best: Best extent and its AP, by detector.
        pairs: Number of image pairs.
    """
    figures = {
        f"AP % on {pairs} validation pairs, {detector} at extent {extent:g}": ap
        for detector, (extent, ap) in best.items()
    }
    kept = {detector: extent for detector, extent in card.extents.items() if detector not in best}
    others = {
        name: value
        for name, value in card.origin.figures.items()
        if not FIGURE.match(name) or any(f", {detector} at extent" in name for detector in kept)
    }
    origin = card.origin.model_copy(update={"figures": {**figures, **others}})
    return card.model_copy(update={"extents": {**{d: e for d, (e, _) in best.items()}, **kept}, "origin": origin})


def measure_extents(
    names: Sequence[str], detectors: Sequence[str], pairs: Path, output: Path, keypoints: int, device: str
) -> None:
    """Measure the extents of models and write them on their cards, with those of other detectors measured before.

    A card keeps the extents of detectors without a measurement in the file.
    """
    cards: list[Card] = []
    for name in names:
        card = find_card(name)
        if card is None:
            raise DoapError(f"{name}: a baseline, which has no card to write extents on")
        cards.append(card)
    measurements = Measurements(output, pairs, keypoints)
    search(measurements, cards, detectors, pairs, keypoints, device)
    for card in cards:
        curves = {detector: measurements.curve(card.name, detector) for detector in DETECTORS}
        best = {detector: (best_extent(curve), max(curve.values())) for detector, curve in curves.items() if curve}
        write_card(find_weights(card.name), update_card(card, best, measurements.settings["pairs"]))
        summary = "; ".join(f"{detector}: {extent:g} ({ap:.2f} %)" for detector, (extent, ap) in best.items())
        print(f"{card.name}: {summary}")
        for detector, (extent, _) in best.items():
            if extent in (min(EXTENTS), max(EXTENTS)):
                print(f"{card.name}: {detector} is best at the end of the grid; a wider grid may have a better extent")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models with a card; by default all shipped ones")
    parser.add_argument("--detectors", nargs="+", choices=DETECTORS, default=DETECTORS, help="by default all")
    parser.add_argument("--pairs", type=Path, required=True, help="folder of image pairs, as for doap eval pairs")
    parser.add_argument("-o", "--output", type=Path, required=True, help="result as JSON")
    parser.add_argument("--keypoints", type=int, default=1000, help="number of strongest keypoints per image")
    parser.add_argument("--device", help="cpu or cuda; by default the GPU if there is one")
    options = parser.parse_args(arguments)
    try:
        names, device = options.names or doap.list_models(), choose_device(options.device)
        measure_extents(names, options.detectors, options.pairs, options.output, options.keypoints, device)
    except DoapError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
