"""Features to matches: nearest neighbours, filtered and verified by a geometry."""

import numpy as np
import torch
from numpy.typing import NDArray

from doap.choices import MatchGeometry
from doap.errors import DoapError
from doap.features.features import Features
from doap.features.matches import Matches
from doap.geometry.robust import Cameras
from doap.matching.nearest import search_matches
from doap.networks.descriptor import check_device
from doap.thresholds import check_thresholds


def match(
    first: Features,
    second: Features,
    *,
    mutual: bool = True,
    ratio: float | None = None,
    max_distance: float | None = None,
    geometry: MatchGeometry | None = "fundamental",
    threshold: float = 1.5,
    cameras: Cameras | None = None,
    device: str | torch.device = "cpu",
) -> Matches:
    """Match the features of two images by nearest neighbours and verify the matches geometrically.

    Every feature of the first image is matched with its nearest neighbour in the second; of equally near ones, with
    the first. Real-valued descriptors are compared by Euclidean distance, binary ones by the number of different bits.

    Args:
        first: Features of the first image.
        second: Features of the second image, by the same model.
        mutual: Keep only pairs that are each other's nearest neighbours.
        ratio: Keep only matches whose distance is less than `ratio` times that to the second nearest neighbour (Lowe's
            test), in 0..1; a match without a second neighbour passes.
        max_distance: Keep only matches up to this distance: 0 to 2 for unit vectors, or a number of bits.
        geometry: "fundamental" for any scene, "homography" for planar scenes and rotating cameras, "essential" for any
            scene and known cameras, None to verify nothing.
        threshold: Largest error of an inlier, in pixels.
        cameras: Intrinsics for "essential": one (3, 3) matrix for both images, or a pair of them.
        device: Device of the search.

    Raises:
        DoapError: If the features come from different models, or an option is out of range.

    Example:
        >>> import doap, skimage
        >>> model = doap.load("doap-demo-128")
        >>> left, right, _ = skimage.data.stereo_motorcycle()
        >>> first, second = doap.detect_and_describe([left, right], model, max_keypoints=1000)
        >>> matches = doap.match(first, second)
        >>> int(matches.inliers.sum()) > 200, matches.matrix.shape
        (True, (3, 3))
    """
    check_thresholds(ratio, max_distance)
    _check_features(first, second)
    indices, distances, second_distances = _search(first, second, mutual, device)
    keep = np.ones(len(indices), bool)
    if ratio is not None:
        keep &= distances < float(ratio) * second_distances
    if max_distance is not None:
        keep &= distances <= float(max_distance)
    matches = Matches(indices[keep], distances[keep], second_distances[keep], np.ones(int(keep.sum()), bool))
    return matches if geometry is None else matches.verify(first, second, geometry, threshold, cameras)


def _search(
    first: Features, second: Features, mutual: bool, device: str | torch.device
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the indices, distances and second distances of `search_matches` on a device, as arrays."""
    target = check_device(device)
    try:
        if target.type == "cpu":
            pairs = search_matches(first.descriptors, second.descriptors, mutual)
            return pairs.indices, pairs.distances, pairs.second_distances
        a, b = (torch.tensor(np.ascontiguousarray(features.descriptors), device=target) for features in (first, second))
        nearest = search_matches(a, b, mutual)
    except ValueError as error:
        raise DoapError(f"features of {first.model} cannot be matched: {error}") from error
    distances, seconds = (x.cpu().numpy().astype(np.float64) for x in (nearest.distances, nearest.second_distances))
    return nearest.indices.cpu().numpy(), distances, seconds


def _check_features(first: Features, second: Features) -> None:
    for features in (first, second):
        if not isinstance(features, Features):
            raise DoapError(f"features are matched with features, not with {type(features).__name__}")
    if first.model != second.model:
        raise DoapError(f"features of {first.model} and {second.model} cannot be matched with each other")
    a, b = first.descriptors, second.descriptors
    if a.shape[1:] != b.shape[1:] or a.dtype != b.dtype:
        raise DoapError(
            f"features of {first.model} differ: {a.shape[1]} values of {a.dtype} and {b.shape[1]} of {b.dtype}; "
            "describe both images with the same weights"
        )
