"""Verified matches of upright against oriented frames, of pairs of photos with and without roll between them.

    doap describe photos/ -o oriented.h5
    doap match oriented.h5 --pairs pairs.txt -o oriented-matches.h5
    doap describe photos/ -o upright.h5 --frames upright
    doap match upright.h5 --pairs pairs.txt -o upright-matches.h5
    python benchmarks/upright.py oriented.h5 oriented-matches.h5 upright.h5 upright-matches.h5

Points are counted once: oriented frames describe a point along each of its dominant gradients. The roll of a pair is
the most frequent difference of the angles of its verified matches of oriented frames; a pair with few has none.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from doap.folders import FeatureCollection, MatchCollection

MIN_MATCHES = 20  # verified, for the roll of a pair
BIN = 10  # degrees


@dataclass(frozen=True)
class PairMatches:
    """Counts of one pair: its mutual matches, all verified ones, and those of distinct points; and its roll."""

    mutual: int
    verified: int
    points: int
    roll: float


def count(features: Path, matches: Path) -> dict[tuple[str, str], PairMatches]:
    """Count the matches of each pair."""
    described, matched = FeatureCollection(features), MatchCollection(matches)
    counts = {}
    for pair in matched.pairs:
        matches_of_pair = matched[pair]
        first, second = (described[name] for name in pair)
        points = np.concatenate(matches_of_pair.points(first, second), 1)[matches_of_pair.inliers]
        i, j = matches_of_pair.indices[matches_of_pair.inliers].T
        bins, edges = np.histogram((second.angles[j] - first.angles[i] + 180) % 360 - 180, 360 // BIN, (-180, 180))
        roll = abs(float(edges[bins.argmax()]) + BIN / 2) if len(points) >= MIN_MATCHES else 0.0
        counts[pair] = PairMatches(len(matches_of_pair), len(points), len(np.unique(points.round(1), axis=0)), roll)
    return counts


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("oriented", "oriented_matches", "upright", "upright_matches"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    oriented = count(options.oriented, options.oriented_matches)
    upright = count(options.upright, options.upright_matches)
    print("| | pairs | frames | pairs with 20 matched points | matched points | verified of the mutual matches |")
    print("|---|---:|---|---:|---:|---:|")
    for title, is_rolled in ((f"roll up to {BIN}°", False), ("more roll", True)):
        pairs = [pair for pair, counts in oriented.items() if (counts.roll > BIN) == is_rolled]
        for name, table in (("oriented", oriented), ("upright", upright)):
            rows = [table[pair] for pair in pairs]
            share = sum(row.verified for row in rows) / max(1, sum(row.mutual for row in rows))
            matched = sum(row.points >= MIN_MATCHES for row in rows)
            points = sum(row.points for row in rows)
            print(f"| {title} | {len(pairs)} | {name} | {matched} | {points:,} | {100 * share:.0f} % |")


if __name__ == "__main__":
    main()
