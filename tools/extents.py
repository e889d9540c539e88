"""Finds the extents at which models are best, by AP on image pairs, and writes them on their cards.

    python tools/extents.py --pairs pairs/aside -o docs/results/extents.json          # all models that ship
    python tools/extents.py doap-128 doap-256b --pairs pairs/aside -o extents.json --device cuda

The pairs choose the extents, so they must be none that anything is tested on. What `doap eval pairs` reads is read.
Right matches of pairs known by labelled points are measured beside AP, but AP decides. The grid goes by √2.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.progress import Progress, TaskID

import doap
from doap.cli.console import choose_device, counting_bar
from doap.errors import DoapError
from doap.evaluation.pairs_judge import PairsJudge
from doap.evaluation.result import Result, Score
from doap.networks.descriptor import Descriptor
from doap.networks.fast import fastest
from doap.networks.registry import Card, find_card, find_weights, load, write_card

DETECTORS = ("dog", "harris-affine")
EXTENTS = (3.0, 4.5, 6.0, 8.5, 12.0, 17.0, 24.0)
FIGURE = "AP % on validation pairs"  # how the figures on a card begin that are written here


def measure(models: dict[str, Descriptor], pairs: Path, keypoints: int, device: str) -> tuple[list[Score], int]:
    """AP in percent of each model by detector and extent, and over how many pairs."""
    quick = {name: fastest(model) for name, model in models.items()}
    scores: list[Score] = []
    count = 0
    with counting_bar() as bar:
        for detector in DETECTORS:
            task = bar.add_task(f"{detector}: reading")
            judge = PairsJudge(pairs, detector, keypoints, EXTENTS, device, _told(bar, task))
            count = len(judge.pairs)
            bar.update(task, description=f"{detector}: judging", completed=0, total=len(EXTENTS) * len(models))
            for name, model in quick.items():
                for extent in EXTENTS:
                    ap, right = judge.at(model, extent)
                    scores.append({"descriptor": name, "detector": detector, "extent": extent, "ap": round(ap, 2),
                                   "right": None if right is None else round(right, 2)})  # fmt: skip
                    bar.advance(task)
    return scores, count


def _told(bar: Progress, task: TaskID) -> Callable[[int, int], None]:
    return lambda done, total: bar.update(task, completed=done, total=total)


def best(scores: Sequence[Score], name: str, detector: str) -> tuple[float, float]:
    """The extent with the highest AP, the smaller of two as good, and that AP."""
    own = [score for score in scores if (score["descriptor"], score["detector"]) == (name, detector)]
    ap = {float(score["extent"] or 0): float(score["ap"] or 0) for score in own}
    extent = max(sorted(ap), key=ap.__getitem__)
    return extent, ap[extent]


def revised(card: Card, found: dict[str, tuple[float, float]]) -> Card:
    """The card with the best extents by detector, and the AP there as its first figures."""
    figures = {f"{FIGURE}, {detector} at extent {extent:g}": ap for detector, (extent, ap) in found.items()}
    others = {name: value for name, value in card.origin.figures.items() if not name.startswith(FIGURE)}
    origin = card.origin.model_copy(update={"figures": {**figures, **others}})
    return card.model_copy(update={"extents": {d: extent for d, (extent, _) in found.items()}, "origin": origin})


def find_extents(names: Sequence[str], pairs: Path, output: Path, keypoints: int, device: str) -> None:
    """Measure, write the table, then the cards."""
    cards: dict[str, Card] = {}
    for name in names:
        card = find_card(name)
        if card is None:
            raise DoapError(f"{name}: a peer, it has no card to write extents on")
        cards[name] = card
    scores, count = measure({name: load(name, device) for name in names}, pairs, keypoints, device)
    Result(
        benchmark="extents",
        settings={"data": pairs.resolve().name, "pairs": count, "keypoints": keypoints, "extents": EXTENTS},
        contenders=[{"name": name, "sha256": card.sha256} for name, card in cards.items()],
        scores=scores,
    ).write_json(output)
    for name, card in cards.items():
        found = {detector: best(scores, name, detector) for detector in DETECTORS}
        write_card(find_weights(name), revised(card, found))
        said = "; ".join(f"{detector}: {extent:g} ({ap:.2f} %)" for detector, (extent, ap) in found.items())
        print(f"{name}: {said}")
        for detector, (extent, _) in found.items():
            if extent in (min(EXTENTS), max(EXTENTS)):
                print(f"{name}: {detector} is best at the end of the grid; a wider one may have a better")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models with a card; by default all that ship")
    parser.add_argument("--pairs", type=Path, required=True, help="as doap eval pairs reads them")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the table, as JSON")
    parser.add_argument("--keypoints", type=int, default=1000, help="the strongest of each image")
    parser.add_argument("--device", help="cpu or cuda; by default the GPU if there is one")
    given = parser.parse_args(arguments)
    try:
        names = given.names or doap.list_models()
        find_extents(names, given.pairs, given.output, given.keypoints, choose_device(given.device))
    except DoapError as fault:
        sys.exit(str(fault))


if __name__ == "__main__":
    main()
