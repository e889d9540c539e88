"""The view graph, images joined by pairs with verified matches, and the pairs in it that are probably wrong."""

from collections.abc import Mapping
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from doap.geometry.robust import Matrix

ImagePair: TypeAlias = tuple[int, int]

ANGLE_PER_PAIR = 10.0  # degrees by which the rotation of a right pair may differ, per pair of the path
MAX_ANGLE = 30.0  # degrees, whatever the length of the path, for pairs with few matches


def low_shares(counts: Mapping[ImagePair, int], min_share: float) -> set[ImagePair]:
    """Return the pairs with less than `min_share` of the matches that each of their images has with some other.

    Args:
        counts: Number of verified matches of each pair.
        min_share: Share, 0 to 1; with 0 there are none.
    """
    best: dict[int, int] = {}
    for pair, count in counts.items():
        for image in pair:
            best[image] = max(best.get(image, 0), count)
    return {pair for pair, count in counts.items() if count < min_share * min(best[image] for image in pair)}


def weak_pairs(
    counts: Mapping[ImagePair, int], rotations: Mapping[ImagePair, Matrix], min_share: float
) -> set[ImagePair]:
    """Return the pairs of images that probably show different places that look alike.

    Two sides of a building share windows, but two photos of one side share more, and other photos connect them: the
    rotations from photo to photo add up to that of the pair. A pair is weak if it has a low share of the matches, see
    `low_shares`, and its rotation is not that along the shortest path between its images.

    Pairs are added to a graph from the one with most matches to the one with fewest. One that joins two parts of the
    graph is added whatever its rotation: without the weak pairs, all images stay connected that were. Any other is
    added if its rotation agrees with that of the path. The tolerance grows with the path, as errors add up, but for
    pairs of a low share it is bounded.

    Args:
        counts: Number of verified matches of each pair.
        rotations: (3, 3) rotations from the first to the second camera of each pair, as far as known.
        min_share: Share of the matches from which on no pair is weak.
    """
    low = low_shares(counts, min_share)
    if not low:
        return set()
    graph = _ViewGraph()
    weak = set()
    for pair in sorted((pair for pair in counts if counts[pair]), key=lambda pair: (-counts[pair], pair)):
        if graph.join(*pair):
            agrees = True
        elif (path := graph.path(*pair)) is None:  # they are joined by pairs of unknown rotation alone
            agrees = pair not in low
        else:
            tolerance = ANGLE_PER_PAIR * (len(path) - 1)
            bound = min(MAX_ANGLE, tolerance) if pair in low else tolerance
            agrees = pair in rotations and angle_between(rotations[pair], graph.rotation(path)) <= bound
        if not agrees and pair in low:
            weak.add(pair)
        if agrees and pair in rotations:
            graph.add(pair, rotations[pair])
    return weak


def angle_between(first: Matrix, second: Matrix) -> float:
    """Return the angle in degrees of the rotation between two (3, 3) rotations."""
    cosine = (np.trace(first @ second.T) - 1) / 2
    return float(np.degrees(np.arccos(np.clip(cosine, -1, 1))))


class _ViewGraph:
    """Images joined by pairs, and the rotations of those pairs that are trusted."""

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}
        self._neighbours: dict[int, dict[int, Matrix]] = {}

    def join(self, first: int, second: int) -> bool:
        """Join the parts of two images; return whether they were two."""
        a, b = self._root(first), self._root(second)
        self._parents[a] = b
        return a != b

    def add(self, pair: ImagePair, rotation: Matrix) -> None:
        """Add a pair to the paths."""
        first, second = pair
        self._neighbours.setdefault(first, {})[second] = rotation
        self._neighbours.setdefault(second, {})[first] = rotation.T

    def path(self, first: int, second: int) -> list[int] | None:
        """Return the images on a shortest path, both ends included; among several, by the pairs added first."""
        previous = {first: first}
        images = [first]
        while images and second not in previous:
            steps = [(image, other) for image in images for other in self._neighbours.get(image, {})]
            images = []
            for image, other in steps:
                if other not in previous:
                    previous[other] = image
                    images.append(other)
        if second not in previous:
            return None
        path = [second]
        while path[-1] != first:
            path.append(previous[path[-1]])
        return path[::-1]

    def rotation(self, path: list[int]) -> Matrix:
        """Return the rotation from the first to the last camera of a path."""
        rotation = np.eye(3)
        for image, following in pairwise(path):
            rotation = self._neighbours[image][following] @ rotation
        return rotation

    def _root(self, image: int) -> int:
        parents = self._parents
        parents.setdefault(image, image)
        while parents[image] != image:
            parents[image] = image = parents[parents[image]]
        return image
