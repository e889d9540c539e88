"""Settings of label mining. The defaults are the paper's."""

from dataclasses import dataclass

CLUSTERS = 100
MAX_CLUSTERS = 4096  # the table of a sequence has K² entries
PERCENTILE = 20.0


@dataclass(frozen=True)
class MiningSettings:
    """Everything that determines mined labels besides the set and the kind of device.

    Attributes:
        clusters: K, clusters per sequence; a sequence with fewer patches has as many clusters as patches.
        percentile: P, percentile of the distances between the clusters of a sequence that is the threshold: clusters
            farther apart are negatives of each other, nearer ones ignore each other.
        seed: Seed of the clusters.
    """

    clusters: int = CLUSTERS
    percentile: float = PERCENTILE
    seed: int = 0
