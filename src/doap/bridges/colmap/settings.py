"""Settings of a COLMAP project, and what was done."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from doap.bridges.colmap.cameras import CameraSettings
from doap.bridges.colmap.pairs import PairSettings
from doap.errors import DoapError, check_number
from doap.folders import DescribeSettings, MatchSettings
from doap.folders.settings import Identity

DESCRIBE = DescribeSettings(max_keypoints=8192, min_response=0.005, max_size=3200)
"""The limits of COLMAP's own features; from this response, about as many keypoints are found as COLMAP finds."""

# Ratio and error were selected on reconstructions of other photos than those of benchmarks/south_building.py: with
# larger values more matches pass, but less accurate ones.
MATCH = MatchSettings(ratio=0.95)
"""Tests of matches."""

MAX_ERROR = 0.0015
"""Largest error of a verified match, relative to the longer side of its images."""

MIN_SHARE = 0.1
"""Smallest number of verified matches of a pair, relative to the best pairs of its images."""

MATCH_IDENTITY = ("mutual", "ratio", "max_distance")


@dataclass(frozen=True)
class ProjectSettings:
    """Settings of `build_project` and `import_into_database`.

    Attributes:
        describe: Model, detector and number of keypoints; by default up to 8192 of responses from 0.005, in images
            reduced to 3200 pixels.
            Images are always described as their pixels are stored, without the rotation of EXIF, as COLMAP reads them.
        pairs: Pairs to match.
        match: Tests of matches; their verification is that of `max_error`, with a kind of geometry chosen per pair.
        cameras: Cameras of new images.
        max_error: Largest error of a verified match, relative to the longer side of its images: lenses bend lines by
            more pixels in larger images.
        refine: Whether keypoints are refined by their matches; see `doap.bridges.colmap.refinement`.
        min_share: Number of verified matches of a pair, relative to those of the best pairs of its images, below
            which it is left out unless other pairs confirm it. See `doap.bridges.colmap.view_graph.weak_pairs`.
    """

    describe: DescribeSettings = DESCRIBE
    pairs: PairSettings = field(default_factory=PairSettings)
    match: MatchSettings = MATCH
    cameras: CameraSettings = field(default_factory=CameraSettings)
    max_error: float = MAX_ERROR
    refine: bool = True
    min_share: float = MIN_SHARE

    def __post_init__(self) -> None:
        check_number("the largest error", self.max_error)
        check_number("the smallest share of matches", self.min_share)
        if not 0 < self.max_error < 1:
            raise DoapError(
                f"the largest error must be between 0 and 1, a share of the longer side, not {self.max_error}"
            )
        if not 0 <= self.min_share <= 1:
            raise DoapError(f"the smallest share of matches must be between 0 and 1, not {self.min_share}")
        for name in ("max_error", "min_share"):
            object.__setattr__(self, name, float(getattr(self, name)))
        object.__setattr__(self, "refine", bool(self.refine))
        object.__setattr__(self, "describe", replace(self.describe, exif_rotation=False))
        object.__setattr__(self, "match", replace(self.match, geometry=None, intrinsics=None))

    def identity(self) -> Identity:
        """Return what decides the features and matches of an image or pair that is in a database."""
        match = self.match.identity()
        return {
            **self.describe.identity(),
            **{name: match[name] for name in MATCH_IDENTITY},
            "max_error": self.max_error,
            "refine": self.refine,
            "min_share": self.min_share,
        }


@dataclass
class ProjectSummary:
    """What `build_project` or `import_into_database` did.

    Attributes:
        database: The database.
        images: Number of images in it that were given.
        described: Number of images described by this run.
        without_keypoints: Names of those that have no keypoint.
        failures: One line per image that is left out.
        keypoints: Number of keypoints of all images.
        cameras: Number of cameras of the images.
        matched: Number of pairs matched by this run.
        weak: Number of pairs that are left out because they are weak.
        verified: Number of verified matches of each pair that was asked for.
    """

    database: Path
    images: int = 0
    described: int = 0
    without_keypoints: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    keypoints: int = 0
    cameras: int = 0
    matched: int = 0
    weak: int = 0
    verified: list[int] = field(default_factory=list)
