"""Corresponding frames of two images: overlapping ellipses under the ground-truth homography.

A frame of the second image is transformed into the first. Both ellipses are enlarged about their centres by the factor
that gives the first one a radius of 30 pixels, so that small and large frames are treated alike (Mikolajczyk et al.,
IJCV 2005). They overlap sufficiently if 1 - intersection / union is then less than 0.5. Frames whose centres are more
than four radii of the first frame apart never do, because 30 pixels are far for a small frame. This much is common with
VLBenchmarks; `find_correspondences` and `common_frames` are our own rule.
"""

import numpy as np
from numpy.typing import NDArray

from doap.geometry.ellipses import overlap, scales
from doap.geometry.homographies import invert_homography, transform_points
from doap.geometry.rotations import relative_rotations
from doap.images.frames import transform_frames
from doap.types import Frames, Homography

OVERLAP_ERROR = 0.5
RADIUS = 30.0
MAX_DISTANCE = 4.0  # between the centres, in radii of the first frame
RULE = (
    f"overlap error under {OVERLAP_ERROR}, the first image's ellipse enlarged to a radius of {RADIUS:g} px, centres "
    f"within {MAX_DISTANCE:g} of its radii, one to one by largest overlap, among frames whose centre both images show"
)

CHUNK_SIZE = 1 << 16  # pairs of frames whose overlap is computed at a time
BLOCK_ENTRIES = 1 << 22  # entries of the distance matrix computed at a time


def common_frames(frames: Frames, homography: Homography, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the indices of the frames whose centre lies inside the other image, ascending.

    Args:
        frames: (N, 2, 3) frames of one image.
        homography: Homography from this image to the other.
        shape: (height, width) of the other image.
    """
    centres = frames[:, :, 2].astype(np.float64)
    x, y = transform_points(centres, homography).T
    # Points beyond the horizon are mirrored back into the image; their depth has the opposite sign.
    depth = centres @ homography[2, :2] + homography[2, 2]
    in_front = np.median(np.sign(depth)) * depth > 0 if len(depth) else depth > 0
    return np.flatnonzero(in_front & (x >= 0) & (y >= 0) & (x <= shape[1] - 1) & (y <= shape[0] - 1))


def find_correspondences(first: Frames, second: Frames, homography: Homography) -> NDArray[np.int64]:
    """Find pairs of frames that show the same region, one to one: greedily by overlap, largest first.

    Overlaps equal to three decimals are ordered by the rotation between the frames, smallest first. This keeps apart
    the frames of a point that has several orientations.

    Args:
        first: (N, 2, 3) frames of the first image, in the part that both images show.
        second: (K, 2, 3) frames of the second image, in the part that both images show.
        homography: Homography from the first to the second image.

    Returns:
        (C, 2) indices into `first` and `second`, in the order of `first`.
    """
    return select_one_to_one(rank_overlapping_pairs(first, second, homography))


def rank_overlapping_pairs(first: Frames, second: Frames, homography: Homography) -> NDArray[np.int64]:
    """Find all pairs of frames that overlap sufficiently, best first, in the order of `find_correspondences`.

    Args:
        first: (N, 2, 3) frames of the first image.
        second: (K, 2, 3) frames of the second image.
        homography: Homography from the first to the second image.

    Returns:
        (P, 2) indices into `first` and `second`; a frame may be in several pairs.
    """
    pairs, overlaps = overlapping_pairs(first, second, homography)
    i, j = pairs.T
    back = transform_frames(second, invert_homography(homography))
    return pairs[np.lexsort((np.abs(relative_rotations(first[i], back[j])), -overlaps.round(3)))]


def overlapping_pairs(
    first: Frames, second: Frames, homography: Homography, overlap_error: float = OVERLAP_ERROR
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find all pairs of frames whose enlarged ellipses overlap sufficiently; a frame may be in several.

    Args:
        first: (N, 2, 3) frames of the first image.
        second: (K, 2, 3) frames of the second image.
        homography: Homography from the first to the second image.
        overlap_error: Limit of 1 - intersection / union.

    Returns:
        (P, 2) indices into `first` and `second`, ascending, and (P,) overlaps.
    """
    back = transform_frames(second, invert_homography(homography))
    i, j = _candidates(first, back, overlap_error)
    overlaps = np.empty(len(i))
    for start in range(0, len(i), CHUNK_SIZE):
        chunk = slice(start, start + CHUNK_SIZE)
        factor = RADIUS / scales(first[i[chunk]])
        overlaps[chunk] = overlap(_enlarge(first[i[chunk]], factor), _enlarge(back[j[chunk]], factor))
    sufficient = overlaps > 1 - overlap_error
    return np.stack([i[sufficient], j[sufficient]], 1), overlaps[sufficient]


def select_one_to_one(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Select (P, 2) pairs greedily in their order, skipping indices already used.

    Returns:
        (C, 2) pairs, ascending.
    """
    partner: dict[int, int] = {}
    used: set[int] = set()
    for a, b in pairs.tolist():
        if a not in partner and b not in used:
            partner[a] = b
            used.add(b)
    return np.array(sorted(partner.items()), np.int64).reshape(-1, 2)


def _candidates(first: Frames, back: Frames, overlap_error: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return indices of pairs close in position and area: intersection / union is at most the ratio of the areas."""
    rows, columns = [], []
    sizes, other_sizes = scales(first), scales(back)
    step = max(1, BLOCK_ENTRIES // max(1, len(back)))
    for start in range(0, len(first), step):
        block = slice(start, start + step)
        distances = np.hypot(*(first[block, None, axis, 2] - back[None, :, axis, 2] for axis in (0, 1)))
        ratio = (sizes[block, None] / other_sizes) ** 2
        similar = np.minimum(ratio, 1 / ratio) > 1 - overlap_error
        i, j = np.nonzero((distances < MAX_DISTANCE * sizes[block, None]) & similar)
        rows.append(i + start)
        columns.append(j)
    return np.concatenate(rows or [np.zeros(0, np.int64)]), np.concatenate(columns or [np.zeros(0, np.int64)])


def _enlarge(frames: Frames, factor: NDArray[np.floating]) -> Frames:
    larger = frames.copy()
    larger[:, :, :2] *= factor[:, None, None]
    return larger
