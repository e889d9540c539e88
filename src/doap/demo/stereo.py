"""First step of the demo: match a real stereo pair with the default model."""

from dataclasses import dataclass
from pathlib import Path

from doap import networks
from doap.demo import photos
from doap.errors import inflect
from doap.features import Features, Matches, detect_and_describe, match
from doap.images.reading import read_grey
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
        return (
            f"{verified} verified of {mutual} mutual {inflect(mutual, 'match', 'matches')} ({self.features[0].model})"
        )


def match_stereo_pair(picture: Path) -> StereoMatches:
    """Match the stereo pair and draw its verified matches."""
    model = load(networks.DEFAULT_MODEL)
    left, right = (read_grey(path) for path in photos.STEREO)
    first, second = detect_and_describe([left, right], model, max_keypoints=KEYPOINTS)
    result = StereoMatches((first, second), match(first, second))
    result.matches.draw(left, right, first, second, picture, result.summary)
    return result
