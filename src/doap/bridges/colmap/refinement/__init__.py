"""Refinement of keypoints by the alignment of the patches of their matches."""

from doap.bridges.colmap.refinement.refining import FIRST_ERROR, refine_keypoints

__all__ = ["FIRST_ERROR", "refine_keypoints"]
