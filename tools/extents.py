"""Finds the extents at which models are best, by AP on image pairs, and writes them on their cards.

    python tools/extents.py --pairs pairs/aside -o docs/results/extents.json          # all models that ship
    python tools/extents.py doap-128 doap-256b --detectors dog --pairs pairs/aside -o extents.json --device cuda

The pairs choose the extents, so they must be none that anything is tested on. What `doap eval pairs` reads is read.
Right matches of pairs known by labelled points are measured beside AP, but AP decides. The grid goes by √2, and is
climbed: from the extent of the training to the best beside it, until both sides of the best are lower.

The table is written after every figure. What it holds of the same weights, pairs and number of keypoints, of whatever
models, is not measured again, so a search that was stopped goes on.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress, TaskID

import doap
from doap.cli.console import choose_device, counting_bar
from doap.errors import DoapError
from doap.evaluation.harness.result import Result, Score, read_result
from doap.evaluation.image_pairs.evaluator import PairsEvaluator, PairsScore
from doap.networks.fast import fastest
from doap.networks.registry import Card, find_card, find_weights, load, write_card

DETECTORS = ("dog", "harris-affine")
EXTENTS = (3.0, 4.5, 6.0, 8.5, 12.0, 17.0, 24.0)
FIGURE = "AP % on validation pairs"  # how the figures on a card begin that are written here


class Figures:
    """What was measured, on disk after every figure."""

    def __init__(self, output: Path, pairs: Path, keypoints: int) -> None:
        self.output = output
        self.settings: dict[str, Any] = {"data": pairs.resolve().name, "keypoints": keypoints, "extents": list(EXTENTS)}
        self.weights: dict[str, str] = {}
        self.scores: list[Score] = []
        if output.exists():
            self._take_over(read_result(output))

    def _take_over(self, earlier: Result) -> None:
        """Keep what was measured in the same way of weights that ship still."""
        if {key: earlier.settings.get(key) for key in self.settings} != self.settings:
            return
        for model in earlier.methods:
            card = find_card(model["name"]) if model["name"] in doap.list_models() else None
            if card is not None and card.sha256 == model["sha256"]:
                self.weights[card.name] = card.sha256
        self.scores = [score for score in earlier.scores if score["descriptor"] in self.weights]
        self.settings["pairs"] = earlier.settings["pairs"]

    def curve(self, name: str, detector: str) -> dict[float, float]:
        """AP by extent."""
        own = [score for score in self.scores if (score["descriptor"], score["detector"]) == (name, detector)]
        return {float(score["extent"] or 0): float(score["ap"] or 0) for score in own}

    def add(self, card: Card, detector: str, extent: float, judged: PairsScore, pairs: int) -> None:
        """Write one more figure, sorted by model, detector and extent."""
        right = None if judged.right is None else round(judged.right, 2)
        self.scores.append({"descriptor": card.name, "detector": detector, "extent": extent,
                            "ap": round(judged.ap, 2), "right": right})  # fmt: skip
        self.scores.sort(key=lambda s: (str(s["descriptor"]), str(s["detector"]), float(s["extent"] or 0)))
        self.weights[card.name] = card.sha256
        self.settings["pairs"] = pairs
        methods = [{"name": name, "sha256": self.weights[name]} for name in sorted(self.weights)]
        result = Result(benchmark="extents", settings=self.settings, methods=methods, scores=self.scores)
        result.write_json(self.output)


def wanted(curve: dict[float, float], start: float) -> float | None:
    """The extent to measure next: at first that of the grid next to `start`; None at the top."""
    if not curve:
        return min(EXTENTS, key=lambda extent: abs(extent - start))
    place = EXTENTS.index(best(curve))
    beside = EXTENTS[max(0, place - 1) : place + 2]
    return next((extent for extent in reversed(beside) if extent not in curve), None)


def best(curve: dict[float, float]) -> float:
    """The extent with the highest AP, the smaller of two as good."""
    return max(sorted(curve), key=curve.__getitem__)


def climb(
    figures: Figures, cards: Sequence[Card], detectors: Sequence[str], pairs: Path, keypoints: int, device: str
) -> None:
    """Measure what is wanted of each model with each detector."""
    with counting_bar() as bar:
        for detector in detectors:
            judge: PairsEvaluator | None = None
            for card in cards:
                task = bar.add_task(f"{card.name}, {detector}", total=None)
                model = fastest(load(card.name, device))
                while (extent := wanted(figures.curve(card.name, detector), card.extent)) is not None:
                    if judge is None:
                        judge = PairsEvaluator(pairs, detector, keypoints, EXTENTS, device, _told(bar, task))
                        bar.update(task, completed=0, total=None)
                    figures.add(card, detector, extent, judge.at(model, extent), len(judge.pairs))
                    bar.advance(task)


def _told(bar: Progress, task: TaskID) -> Callable[[int, int], None]:
    return lambda done, total: bar.update(task, completed=done, total=total)


def revised(card: Card, found: dict[str, tuple[float, float]]) -> Card:
    """The card with the best extents by detector, and the AP there as its first figures."""
    figures = {f"{FIGURE}, {detector} at extent {extent:g}": ap for detector, (extent, ap) in found.items()}
    others = {name: value for name, value in card.origin.figures.items() if not name.startswith(FIGURE)}
    origin = card.origin.model_copy(update={"figures": {**figures, **others}})
    return card.model_copy(update={"extents": {d: extent for d, (extent, _) in found.items()}, "origin": origin})


def find_extents(
    names: Sequence[str], detectors: Sequence[str], pairs: Path, output: Path, keypoints: int, device: str
) -> None:
    """Measure, then write the cards: what was found of these detectors now, and of others before."""
    cards: list[Card] = []
    for name in names:
        card = find_card(name)
        if card is None:
            raise DoapError(f"{name}: a peer, it has no card to write extents on")
        cards.append(card)
    figures = Figures(output, pairs, keypoints)
    climb(figures, cards, detectors, pairs, keypoints, device)
    for card in cards:
        curves = {detector: figures.curve(card.name, detector) for detector in DETECTORS}
        found = {detector: (best(curve), curve[best(curve)]) for detector, curve in curves.items() if curve}
        write_card(find_weights(card.name), revised(card, found))
        said = "; ".join(f"{detector}: {extent:g} ({ap:.2f} %)" for detector, (extent, ap) in found.items())
        print(f"{card.name}: {said}")
        for detector, (extent, _) in found.items():
            if extent in (min(EXTENTS), max(EXTENTS)):
                print(f"{card.name}: {detector} is best at the end of the grid; a wider one may have a better")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models with a card; by default all that ship")
    parser.add_argument("--detectors", nargs="+", choices=DETECTORS, default=DETECTORS, help="by default all")
    parser.add_argument("--pairs", type=Path, required=True, help="as doap eval pairs reads them")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the table, as JSON")
    parser.add_argument("--keypoints", type=int, default=1000, help="the strongest of each image")
    parser.add_argument("--device", help="cpu or cuda; by default the GPU if there is one")
    given = parser.parse_args(arguments)
    try:
        names = given.names or doap.list_models()
        find_extents(names, given.detectors, given.pairs, given.output, given.keypoints, choose_device(given.device))
    except DoapError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
