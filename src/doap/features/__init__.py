"""Image to features to matches."""

from doap.features.features import Features, FrameDescriber, Matches, PatchDescriber, detect_and_describe, match

__all__ = ["Features", "FrameDescriber", "Matches", "PatchDescriber", "detect_and_describe", "match"]
