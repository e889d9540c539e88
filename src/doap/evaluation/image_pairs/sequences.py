"""Sequences of the Oxford benchmark: the six of the paper, mean AP per sequence, and the protocol of a result."""

from collections.abc import Mapping, Sequence

import numpy as np

from doap.evaluation.harness.result import Result, Score

# The paper says six and names graf and boat. Our reading: each kind of change (blur, zoom with rotation, viewpoint on a
# plane twice, light, compression) without the two sequences of natural texture.
PAPER_SEQUENCES = ("bikes", "boat", "graf", "leuven", "ubc", "wall")


def by_sequence(scores: Sequence[Score]) -> dict[str, dict[str, float]]:
    """Compute the mean AP of each descriptor in each sequence, in percent."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in scores:
        sequences = values.setdefault(str(row["descriptor"]), {})
        sequences.setdefault(str(row["sequence"]), []).append(float(row["ap"] or 0))
    return {
        name: {sequence: float(np.mean(aps)) for sequence, aps in sequences.items()}
        for name, sequences in values.items()
    }


def mean_of_six(ap_by_sequence: Mapping[str, float]) -> float | None:
    """Return the mean of one descriptor's AP over the paper's six sequences; None if one is missing."""
    values = [ap_by_sequence[name] for name in PAPER_SEQUENCES if name in ap_by_sequence]
    return float(np.mean(values)) if len(values) == len(PAPER_SEQUENCES) else None


def protocol_of(result: Result) -> str:
    """Return the name of the protocol of an Oxford result; older files name none."""
    return str(result.settings.get("protocol", "doap"))
