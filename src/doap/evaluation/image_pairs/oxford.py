"""Image matching in the Oxford sequences: detection, extraction, description and matching, as in the paper.

A sequence is six images; the first is matched with each of the others. `image_pairs.score` says what is measured on a
pair, `correspondences` what is right. AP of a sequence is the mean over its five pairs, mAP the mean over sequences.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from doap.datasets.official.image_sequences import find_sequences
from doap.datasets.sets.image_pairs import PairFiles, sequence_pairs
from doap.errors import DoapError
from doap.evaluation.harness.result import Score

# The paper says six and names graf and boat. Our reading: each kind of change (blur, zoom with rotation, viewpoint on a
# plane twice, light, compression) without the two sequences of natural texture.
PAPER_SEQUENCES = ("bikes", "boat", "graf", "leuven", "ubc", "wall")
PAPER_DETECTOR, PAPER_EXTENT = "harris-affine", 3.0


def find_oxford(folder: Path) -> list[PairFiles]:
    """The pairs of all sequences in a folder and below it, in the layout of Oxford or HPatches.

    Raises:
        DoapError: for a sequence that is not whole, two of one name, or none.
    """
    sequences = find_sequences(folder)
    names = [sequence.name for sequence in sequences]
    for name in names:
        if names.count(name) > 1:
            raise DoapError(f"{folder}: two sequences are called {name}; give the folder of one")
    return [pair for sequence in sequences for pair in sequence_pairs(sequence, sequence.name)]


def by_sequence(scores: Sequence[Score]) -> dict[str, dict[str, float]]:
    """Mean AP of each descriptor in each sequence, in percent."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in scores:
        own = values.setdefault(str(row["descriptor"]), {})
        own.setdefault(str(row["sequence"]), []).append(float(row["ap"] or 0))
    return {name: {key: float(np.mean(aps)) for key, aps in own.items()} for name, own in values.items()}


def mean_of_six(by_name: Mapping[str, float]) -> float | None:
    """Of one descriptor's mean AP in sequences, the mean over the paper's six; None where one is missing."""
    found = [by_name[name] for name in PAPER_SEQUENCES if name in by_name]
    return float(np.mean(found)) if len(found) == len(PAPER_SEQUENCES) else None
