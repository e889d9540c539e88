"""Settings of builds, in their own module: the command line reads the defaults without importing the builds."""

from dataclasses import dataclass
from typing import Self

from doap.choices import DEFAULT_EXTENT, HPatchesNoise
from doap.errors import DoapError
from doap.extents import check_extent

MIN_LONGEST, MAX_LONGEST = 64, 16383  # sides of stored photos; the second is the limit of WebP


@dataclass(frozen=True)
class BuildSettings:
    """Settings of a build of a set from photos.

    Attributes:
        points: Maximum number of groups per single photo or static view; all tracks are kept.
        views: Use single photos, whose groups are seen in jittered views.
        static: Use photos of static views.
        tracks: Use points tracked through overlapping photos.
        longest: Photos are shrunk to at most this many pixels on the longer side.
        extent: Half the side of a patch in units of the frame's scale.
        seed: Determines the build.
    """

    points: int = 400
    views: bool = True
    static: bool = True
    tracks: bool = True
    longest: int = 1600
    extent: float = DEFAULT_EXTENT
    seed: int = 0

    def __post_init__(self) -> None:
        check_extent(self.extent)
        if not MIN_LONGEST <= self.longest <= MAX_LONGEST:
            raise DoapError(f"longest must be {MIN_LONGEST} to {MAX_LONGEST:,} pixels, not {self.longest:,}")


@dataclass(frozen=True)
class HPatchesSettings:
    """Settings of folders in the format of HPatches.

    Stored beside the folders, so that an interrupted run continues with the same ones.

    Attributes:
        points: Maximum number of points per sequence.
        seed: Determines the selection of frames and the noise.
        noise: Strength of the noise of the frames.
    """

    points: int = 1500
    seed: int = 0
    noise: HPatchesNoise = "overlap"


@dataclass(frozen=True)
class PairSettings:
    """Settings of image pairs.

    Attributes:
        per_scene: Maximum number of pairs of overlapping photos per scene.
        copies: Number of pairs per static view or single photo.
        singles: Maximum number of single photos to copy, one per scene.
        seed: Determines the selection, the warps and the light.
    """

    per_scene: int = 3
    copies: int = 2
    singles: int = 60
    seed: int = 0


@dataclass(frozen=True)
class LookAlikeSettings:
    """Settings of sets in the official formats, made from photos.

    Stored beside the sets, so that an interrupted run continues with the same ones.

    Attributes:
        patches: Maximum number of patches per Phototour set.
        pairs: Maximum number of matching pairs per Phototour set; there are as many non-matching ones.
        groups: Maximum number of groups per half of RomePatches.
        points: Maximum number of points per sequence of HPatches.
        jitter: Cut Phototour patches as easy and hard views. Without jitter SIFT is almost perfect on them, because
            points are tracked by SIFT matches and the photos of a scene are often of one camera and one hour.
        seed: Determines the choice of scenes and points, the pairs, the warps and the jitter.
    """

    patches: int = 40_000
    pairs: int = 50_000
    groups: int = 1000
    points: int = 1500
    jitter: bool = True
    seed: int = 0

    @classmethod
    def quick(cls) -> Self:
        """Return settings of small sets, to try a protocol."""
        return cls(patches=4000, pairs=4000, groups=100, points=200)
