"""Choice of the pairs of images to match."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from doap.choices import PairChoice
from doap.errors import DoapError, check_choice, check_whole_number
from doap.folders import Pair, all_pairs, read_pairs, retrieve_pairs
from doap.types import Progress


@dataclass(frozen=True)
class PairSettings:
    """Which images to match.

    Attributes:
        choice: "exhaustive" for all pairs; "retrieval" for each image with the most similar ones; "sequential" for each
            image with those that follow it by name, of a video; or a file with two names per line.
        neighbours: Number of similar or following images.
        quadratic: Match an image of a sequence also with those 1, 2, 4, 8, … places after it, `neighbours` of them.
    """

    choice: PairChoice | Path = "exhaustive"
    neighbours: int = 20
    quadratic: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.choice, Path):
            check_choice("pairs", self.choice, get_args(PairChoice), "the Path of a file")
        check_whole_number("the number of neighbours", self.neighbours)
        if self.neighbours < 1:
            raise DoapError(f"the number of neighbours must be at least 1, not {self.neighbours}")


def read_choice(settings: PairSettings, names: Collection[str]) -> list[Pair] | None:
    """Read the file of pairs, and check before images are described that other pairs can be chosen.

    Returns:
        Pairs of the file; None if pairs are chosen in another way.

    Raises:
        DoapError: If the file of pairs cannot be read, or names other images.
        ModuleNotFoundError: If retrieval is asked for without faiss.
    """
    if settings.choice == "retrieval":
        import faiss  # noqa: F401
    return read_pairs(settings.choice, names) if isinstance(settings.choice, Path) else None


def choose_pairs(
    settings: PairSettings, listed: list[Pair] | None, features: Path, names: Collection[str], progress: Progress
) -> list[Pair]:
    """Return the pairs to match.

    Args:
        settings: Choice of the pairs.
        listed: What `read_choice` returned; may name images that could not be described.
        features: Features of the images, as `describe_folder` writes them.
        names: Images that have features.
        progress: Called with the numbers of finished and of all images of a retrieval.
    """
    if settings.choice == "exhaustive":
        return all_pairs(names)
    if settings.choice == "sequential":
        return sequential_pairs(names, settings.neighbours, settings.quadratic)
    if listed is None:
        listed = retrieve_pairs(features, settings.neighbours, names=names, progress=progress)
    known = set(names)
    return [pair for pair in listed if known.issuperset(pair)]


def sequential_pairs(names: Iterable[str], neighbours: int, quadratic: bool) -> list[Pair]:
    """Pair each image with those that follow it; numbers in names are compared as numbers."""
    order = sorted(names, key=natural_key)
    steps = set(range(1, neighbours + 1))
    if quadratic:
        steps |= {2**power for power in range(min(neighbours, len(order).bit_length()))}
    return [(order[i], order[i + step]) for i in range(len(order)) for step in sorted(steps) if i + step < len(order)]


def natural_key(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return a key that sorts a2 before a10."""
    parts = re.split(r"(\d+)", name)  # text and numbers by turns
    return [(int(part), "") if index % 2 else (-1, part) for index, part in enumerate(parts)], name
