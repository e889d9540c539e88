"""User API: images to features, features to matches."""

from doap.features.describers import FrameDescriber, ModelDescriber
from doap.features.describing import describe_keypoints, detect_and_describe
from doap.features.features import Features
from doap.features.matches import Matches
from doap.features.matching import match
from doap.features.wide import WideMatches, match_wide

__all__ = [
    "Features",
    "FrameDescriber",
    "Matches",
    "ModelDescriber",
    "WideMatches",
    "describe_keypoints",
    "detect_and_describe",
    "match",
    "match_wide",
]
