"""User API: images to features, features to matches."""

from doap.features.describing import FrameDescriber, ModelDescriber, detect_and_describe
from doap.features.features import Features
from doap.features.matching import Matches, match

__all__ = ["Features", "FrameDescriber", "Matches", "ModelDescriber", "detect_and_describe", "match"]
