"""Label mining: similar patches of one sequence ignore each other (paper, section 4.2 and appendix C)."""

CLUSTERS = 100
"""Clusters per sequence."""

PERCENTILE = 20.0
"""Percentile of the distances between clusters below which they ignore each other."""
