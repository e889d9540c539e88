"""The Rank tab: one query patch, and the patches of the other picture ranked by distance."""
