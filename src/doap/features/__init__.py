"""User API: images to features, features to matches."""

from doap.features.describers import FrameDescriber, ModelDescriber
from doap.features.describing import describe_keypoints, detect_and_describe
from doap.features.features import Features
from doap.features.matches import Matches
from doap.features.matching import match

__all__ = [
    "Features",
    "FrameDescriber",
    "Matches",
    "ModelDescriber",
    "describe_keypoints",
    "detect_and_describe",
    "match",
]
