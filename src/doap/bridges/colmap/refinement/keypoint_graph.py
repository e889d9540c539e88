"""The graph of matched keypoints, and corrections of keypoints that agree with the alignments of all their matches.

Keypoints are nodes of a graph, aligned matches its edges. Along an edge from i to j, the patch of j was found to be
shifted by d against that of i, in units of their frames. The corrections v, in the same units, minimise

    sum over edges of w |v_j - v_i - d|²  +  DAMPING · sum over nodes of |v|²

so that every keypoint moves once, as all its matches ask together. (Lindenberger et al., Pixel-Perfect
Structure-from-Motion, 2021, adjust keypoints likewise, by learned features.)
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from doap.errors import DoapError

DAMPING = 0.1  # relative to an edge of weight 1: fixes the mean of each track, which the edges leave free
TOLERANCE = 1e-5  # of the residual, relative to the right side
MAX_STEPS = 1000

Values = NDArray[np.float64]
Matches = NDArray[np.int64]
Item = TypeVar("Item", bound=np.generic)


@dataclass(frozen=True, eq=False)
class MatchGraph:
    """Keypoints that have verified matches, the nodes, and these matches, the edges.

    Attributes:
        keypoints: Keypoints with matches of each image, ascending.
        pairs: Names of the images of each pair.
        matches: (P, 2) keypoints of each pair.
    """

    keypoints: dict[str, NDArray[np.int64]]
    pairs: list[tuple[str, str]]
    matches: list[Matches]

    @classmethod
    def of_matches(cls, matched_pairs: Iterable[tuple[tuple[str, str], Matches]]) -> "MatchGraph":
        """Return the graph of the matches of pairs of images; pairs without any are left out."""
        pairs, matches, columns = [], [], dict[str, list[NDArray[np.int64]]]()
        for names, rows in matched_pairs:
            if len(rows):
                pairs.append(names)
                matches.append(rows)
                for name, column in zip(names, rows.T, strict=True):
                    columns.setdefault(name, []).append(column)
        return cls({name: np.unique(np.concatenate(columns[name])) for name in sorted(columns)}, pairs, matches)

    def __len__(self) -> int:
        """Return the number of nodes."""
        return sum(map(len, self.keypoints.values()))

    @cached_property
    def rows(self) -> list[Matches]:
        """Matches of each pair as places among the keypoints with matches of their images, (P, 2)."""
        positions = []
        for (first, second), rows in zip(self.pairs, self.matches, strict=True):
            columns = (self.keypoints[first], rows[:, 0]), (self.keypoints[second], rows[:, 1])
            positions.append(np.stack([np.searchsorted(keypoints, column) for keypoints, column in columns], 1))
        return positions

    @cached_property
    def edges(self) -> Matches:
        """Nodes of all matches, (E, 2)."""
        ends = np.cumsum([0, *map(len, self.keypoints.values())])
        starts = dict(zip(self.keypoints, ends.tolist(), strict=False))
        parts = [rows + [starts[name] for name in names] for names, rows in zip(self.pairs, self.rows, strict=True)]
        return np.concatenate([np.empty((0, 2), np.int64), *parts])

    def by_pair(self, values: NDArray[Item]) -> list[NDArray[Item]]:
        """Split values of all edges, (E, …), by pair."""
        return np.split(values, np.cumsum([len(rows) for rows in self.rows])[:-1]) if self.pairs else []

    def by_image(self, values: NDArray[Item]) -> dict[str, NDArray[Item]]:
        """Split values of all nodes, (N, …), by image."""
        counts = np.cumsum([len(keypoints) for keypoints in self.keypoints.values()])
        return dict(zip(self.keypoints, np.split(values, counts[:-1]), strict=True)) if self.pairs else {}


def solve_corrections(count: int, edges: NDArray[np.int64], shifts: Values, weights: Values) -> Values:
    """Return the corrections of all nodes by conjugate gradients.

    Args:
        count: Number of nodes.
        edges: (E, 2) nodes i and j.
        shifts: (E, 2) d.
        weights: (E,) w, not negative.

    Returns:
        (count, 2) v.
    """
    first, second = edges.T

    def gather(values: Values) -> Values:
        """Sum values of edges, (E, 2), at their second node, and subtract them at their first."""
        return np.stack(
            [
                np.bincount(second, column, count) - np.bincount(first, column, count)
                for column in (weights[:, None] * values).T
            ],
            1,
        )

    def apply(v: Values) -> Values:
        return gather(v[second] - v[first]) + DAMPING * v

    degrees = np.bincount(first, weights, count) + np.bincount(second, weights, count) + DAMPING
    right = gather(shifts)
    v, residual = np.zeros_like(right), right
    direction = residual / degrees[:, None]
    power = (residual * direction).sum(0)
    limit = TOLERANCE * np.linalg.norm(right)
    for _ in range(MAX_STEPS):
        if np.linalg.norm(residual) <= limit:
            return v
        image = apply(direction)
        # Both coordinates are solved at once; one that is exact already has no step.
        step = np.divide(power, (direction * image).sum(0), out=np.zeros(2), where=power > 0)
        v, residual = v + step * direction, residual - step * image
        scaled = residual / degrees[:, None]
        power, before = (residual * scaled).sum(0), power
        direction = scaled + np.divide(power, before, out=np.zeros(2), where=before > 0) * direction
    raise DoapError("the corrections of keypoints did not converge; leave them out with --no-refine")
