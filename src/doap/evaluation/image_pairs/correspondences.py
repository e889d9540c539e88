"""Which frames of two images show the same region: overlapping ellipses under the true homography, one to one.

The rule is that of VLBenchmarks, which follows Mikolajczyk et al. (IJCV 2005). A frame of the second image is sent
back into the first. Both ellipses are enlarged about their centres by the factor that gives the one of the first image
a radius of 30 pixels, so that small and large frames are judged alike; they correspond if 1 - intersection / union is
under 0.5 then. Centres more than four radii of the first frame apart never do: to a small frame, 30 pixels are far.
Pairs are taken by overlap, largest first, as long as neither of the two is taken.
"""

import numpy as np
from numpy.typing import NDArray

from doap.geometry.ellipses import overlap, scales
from doap.geometry.homographies import transform_points
from doap.images.frames import transform_frames
from doap.types import Frames

OVERLAP_ERROR = 0.5
RADIUS = 30.0
FARTHEST = 4.0  # radii of the first frame between the centres
RULE = (
    f"overlap error under {OVERLAP_ERROR}, the first image's ellipse enlarged to a radius of {RADIUS:g} px, centres "
    f"within {FARTHEST:g} of its radii, one to one by largest overlap, among frames whose centre both images show"
)

PAIRS_AT_ONCE = 1 << 16
ENTRIES_AT_ONCE = 1 << 22


def common_part(frames: Frames, homography: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Which of (N, 2, 3) frames have their centre inside the other image: ascending indices.

    Args:
        frames: of one image.
        homography: from it into the other.
        shape: (height, width) of the other.
    """
    centres = frames[:, :, 2].astype(np.float64)
    x, y = transform_points(centres, homography).T
    # Beyond the horizon a homography mirrors points back into the image; they have the other sign of depth.
    depth = centres @ homography[2, :2] + homography[2, 2]
    seen = np.median(np.sign(depth)) * depth > 0 if len(depth) else depth > 0
    return np.flatnonzero(seen & (x >= 0) & (y >= 0) & (x <= shape[1] - 1) & (y <= shape[0] - 1))


def corresponding(first: Frames, second: Frames, homography: NDArray[np.float64]) -> NDArray[np.int64]:
    """Pairs of frames that show the same region; no frame is in two of them.

    Where overlaps are equal to three digits, as between the frames of points that have several orientations, the pair
    whose frames are turned less against each other goes first.

    Args:
        first: (N, 2, 3) frames of the first image, in the part that both show.
        second: (K, 2, 3) of the second, likewise.
        homography: from the first into the second.

    Returns:
        (C, 2) indices into first and second, in the order of the first.
    """
    back = transform_frames(second, np.asarray(np.linalg.inv(homography), np.float64))
    i, j = _candidates(first, back)
    shared = np.empty(len(i))
    for start in range(0, len(i), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        factor = RADIUS / scales(first[i[part]])
        shared[part] = overlap(_enlarge(first[i[part]], factor), _enlarge(back[j[part]], factor))
    kept = shared > 1 - OVERLAP_ERROR
    i, j, shared = i[kept], j[kept], shared[kept]
    order = np.lexsort((_turn(first[i], back[j]), -shared.round(3)))
    return _one_to_one(i[order], j[order])


def _candidates(first: Frames, back: Frames) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of pairs near enough and alike enough in area: intersection / union is at most the areas' ratio."""
    rows, columns = [], []
    sizes, other_sizes = scales(first), scales(back)
    step = max(1, ENTRIES_AT_ONCE // max(1, len(back)))
    for start in range(0, len(first), step):
        part = slice(start, start + step)
        apart = np.hypot(*(first[part, None, axis, 2] - back[None, :, axis, 2] for axis in (0, 1)))
        ratio = (sizes[part, None] / other_sizes) ** 2
        alike = np.minimum(ratio, 1 / ratio) > 1 - OVERLAP_ERROR
        i, j = np.nonzero((apart < FARTHEST * sizes[part, None]) & alike)
        rows.append(i + start)
        columns.append(j)
    return np.concatenate(rows or [np.zeros(0, np.int64)]), np.concatenate(columns or [np.zeros(0, np.int64)])


def _enlarge(frames: Frames, factor: NDArray[np.floating]) -> Frames:
    larger = frames.copy()
    larger[:, :, :2] *= factor[:, None, None]
    return larger


def _turn(first: Frames, second: Frames) -> NDArray[np.float64]:
    """By how much paired frames are turned against each other, (P,) in radians: the rotation in A⁻¹ B."""
    between = np.linalg.solve(first[:, :, :2].astype(np.float64), second[:, :, :2].astype(np.float64))
    return np.abs(np.arctan2(between[:, 1, 0] - between[:, 0, 1], between[:, 0, 0] + between[:, 1, 1]))


def _one_to_one(i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.int64]:
    """The pairs (i, j), best first, that are left when each takes what is still free."""
    partner: dict[int, int] = {}
    taken: set[int] = set()
    for a, b in zip(i.tolist(), j.tolist(), strict=True):
        if a not in partner and b not in taken:
            partner[a] = b
            taken.add(b)
    return np.array(sorted(partner.items()), np.int64).reshape(-1, 2)
