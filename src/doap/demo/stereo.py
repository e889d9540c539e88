"""First step of the demo: match a real stereo pair with the default model."""

from dataclasses import dataclass
from pathlib import Path

from doap import networks
from doap.demo import photos
from doap.features import Features, Matches, detect_and_describe, match
from doap.features.drawing import draw_matches
from doap.images.reading import read_grey
from doap.networks.inference import optimize_for_inference
from doap.networks.registry import load

KEYPOINTS = 1000


@dataclass(frozen=True)
class StereoMatches:
    """Features and matches of the stereo pair."""

    features: tuple[Features, Features]
    matches: Matches

    @property
    def summary(self) -> str:
        """Number of matches and the model, as one line."""
        verified, mutual = int(self.matches.inliers.sum()), len(self.matches)
        return f"{verified} verified of {mutual} mutual matches ({self.features[0].model})"


def match_stereo_pair(picture: Path) -> StereoMatches:
    """Match the stereo pair and draw its verified matches."""
    model = optimize_for_inference(load(networks.DEFAULT_MODEL))
    left, right = (read_grey(path) for path in photos.STEREO)
    features = detect_and_describe(left, model, KEYPOINTS), detect_and_describe(right, model, KEYPOINTS)
    result = StereoMatches(features, match(*features))
    draw_matches(left, right, *result.matches.verified_points(*features), result.summary, picture)
    return result
