"""Robust estimation of a fundamental matrix, homography or essential matrix, with an a-contrario test."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.choices import MatchGeometry
from doap.errors import DoapError, check_choice
from doap.thresholds import check_inlier_threshold

SAMPLE_SIZE = {"fundamental": 7, "homography": 4, "essential": 5}  # points that determine the model
NORMS = {"fundamental": 1.0, "essential": math.sqrt(2)}  # OpenCV divides by the last element, even if it is about 0
CONFIDENCE = 0.9999
MAX_ITERATIONS = 20_000
MAX_LOG_NFA = -3.0  # a model is accepted below this
MIN_SEARCH_THRESHOLD = 1.5  # pixels; see `_estimate`
MAX_DISTANCE = 1e9  # of points that decide between the poses of an essential matrix, in baselines

Matrix = NDArray[np.float64]
Points = NDArray[np.floating]
Cameras = NDArray[np.floating] | Sequence[NDArray[np.floating]]
"""Intrinsics: one (3, 3) matrix for both images, or one for each."""


@dataclass(frozen=True, eq=False)
class Verification:
    """The estimated geometry of an image pair.

    Attributes:
        matrix: (3, 3), or None if no geometry was accepted. A fundamental matrix has norm 1, an essential matrix the
            singular values 1, 1 and 0.
        inliers: (P,) bool, all False without a matrix.
        log_nfa: log10 of the number of false alarms; see `log_false_alarms`.
        rotation: (3, 3) rotation R of the second camera relative to the first, of an essential matrix only.
        translation: (3,) direction t of its translation, a unit vector: a point X of the first camera is R X + t in
            the second, up to the unknown length of t. If the camera only rotates, t is arbitrary.
    """

    matrix: Matrix | None
    inliers: NDArray[np.bool_]
    log_nfa: float
    rotation: Matrix | None = None
    translation: Matrix | None = None


def verify(
    first: Points,
    second: Points,
    size: tuple[int, int],
    geometry: MatchGeometry = "fundamental",
    threshold: float = 1.5,
    cameras: Cameras | None = None,
) -> Verification:
    """Fit a geometry to matched points with OpenCV's USAC (MAGSAC++), and reject it if chance explains it.

    Among many wrong matches, some always agree. The number of false alarms (Moisan and Stival, 2004) is the expected
    number of agreements of this size among random matches. The geometry is accepted if it is below 1e-3.

    Args:
        first: (P, 2) points (x, y) in the first image.
        second: (P, 2) matching points in the second image.
        size: (height, width) of the second image.
        geometry: The model to fit: "fundamental" for any scene, "homography" for a plane or a rotating camera,
            "essential" for any scene and known cameras, which also gives their relative pose.
        threshold: Maximum error of an inlier in pixels: its Sampson distance from a fundamental or essential matrix,
            its distance from the position that a homography predicts.
        cameras: Intrinsics of the images, for "essential": one (3, 3) matrix for both, or a pair of them.

    Raises:
        DoapError: If the points or cameras are not as described.

    Example:
        >>> import doap, numpy as np
        >>> first = np.random.default_rng(0).uniform(0, 500, (100, 2))
        >>> result = doap.verify(first, first + [20, 5], (500, 500), "homography")
        >>> result.inliers.all(), result.matrix.round(3)[:2, 2]
        (np.True_, array([20.,  5.]))
    """
    a, b = _check_points(first, second)
    intrinsics = check_cameras(geometry, cameras)
    check_inlier_threshold(threshold)
    threshold = float(threshold)  # OpenCV does not take scalar tensors
    if not _is_size(size):
        raise DoapError(f"the size of an image must be (height, width), at least one pixel each, not {size}")
    count = len(a)
    rejected = Verification(None, np.zeros(count, bool), 0.0)
    if count <= SAMPLE_SIZE[geometry]:
        return rejected
    try:
        matrix, inliers = _estimate(a, b, geometry, threshold, intrinsics)
    except cv2.error:  # raised for some degenerate points instead of returning None
        return rejected
    if matrix is None or matrix.shape != (3, 3) or not np.isfinite(matrix).all() or not matrix.any():
        return rejected
    if geometry in NORMS:
        matrix = matrix * (NORMS[geometry] / np.linalg.norm(matrix))
    # Matches that share a point are not independent: a degenerate geometry agrees with all matches of one point.
    independent = min(len(np.unique(points[inliers].round(), axis=0)) for points in (a, b))
    log_nfa = log_false_alarms(count, independent, size, geometry, threshold)
    if log_nfa >= MAX_LOG_NFA:
        return rejected
    pose = recover_pose(matrix, a[inliers], b[inliers], intrinsics) if intrinsics else (None, None)
    return Verification(matrix, inliers, log_nfa, *pose)


def recover_pose(essential: Matrix, first: Points, second: Points, cameras: Sequence[Matrix]) -> tuple[Matrix, Matrix]:
    """Decompose an essential matrix into the pose with most of the points in front of both cameras.

    Returns:
        (3, 3) rotation R; (3,) unit vector t: a point X of the first camera is R X + t in the second.
    """
    a, b = _normalise(first, cameras[0]), _normalise(second, cameras[1])
    # Points of any distance count: by default, OpenCV leaves out those farther than 50 baselines.
    _, rotation, translation, _, _ = cv2.recoverPose(essential, a, b, np.eye(3), distanceThresh=MAX_DISTANCE)
    return np.asarray(rotation, np.float64), np.asarray(translation, np.float64).ravel()


def sampson_distances(fundamental: Matrix, first: Points, second: Points) -> NDArray[np.float64]:
    """Compute |x'ᵀFx| / √((Fx)₁² + (Fx)₂² + (Fᵀx')₁² + (Fᵀx')₂²) of matched points, (P,) in pixels."""
    x, y = (np.column_stack([points, np.ones(len(points))]) for points in (first, second))
    lines, back = x @ fundamental.T, y @ fundamental
    norms = np.sqrt((lines[:, :2] ** 2).sum(1) + (back[:, :2] ** 2).sum(1))
    return np.asarray(np.abs((y * lines).sum(1)) / np.maximum(norms, 1e-300))


def _estimate(
    first: Points, second: Points, geometry: MatchGeometry, threshold: float, cameras: Sequence[Matrix] | None
) -> tuple[Matrix | None, NDArray[np.bool_]]:
    """Return the matrix of USAC, None if there is none, and its inliers.

    OpenCV's MAGSAC++ weighs errors up to 2.5 pixels, of a homography up to 8, whatever the threshold. The images are
    enlarged if the threshold is so small that errors far above it would decide.
    """
    scale = max(1.0, MIN_SEARCH_THRESHOLD / threshold)
    if cameras:
        return _estimate_essential(first, second, threshold, cameras, scale)
    a, b, search = scale * first, scale * second, scale * threshold
    if geometry == "fundamental":
        matrix, mask = cv2.findFundamentalMat(a, b, cv2.USAC_MAGSAC, search, CONFIDENCE, MAX_ITERATIONS)
    else:
        matrix, mask = cv2.findHomography(a, b, cv2.USAC_MAGSAC, search, maxIters=MAX_ITERATIONS, confidence=CONFIDENCE)
    if matrix is None or mask is None:
        return None, np.zeros(len(first), bool)
    to_scaled = np.diag([scale, scale, 1])
    back = to_scaled if geometry == "fundamental" else np.diag([1 / scale, 1 / scale, 1])
    return back @ np.asarray(matrix, np.float64) @ to_scaled, mask.ravel().astype(bool)


def _estimate_essential(
    first: Points, second: Points, threshold: float, cameras: Sequence[Matrix], scale: float
) -> tuple[Matrix | None, NDArray[np.bool_]]:
    """Estimate E in images of one camera of the mean focal length; count inliers in pixels of the given images.

    Rays, points of focal length 1, would all be nearer than the 2.5 pixels up to which OpenCV's MAGSAC++ weighs errors.
    """
    focal = scale * float(np.mean([camera[[0, 1], [0, 1]] for camera in cameras]))
    a, b = (focal * _normalise(points, camera) for points, camera in zip((first, second), cameras, strict=True))
    essential, _ = cv2.findEssentialMat(
        a, b, np.diag([focal, focal, 1]), cv2.USAC_MAGSAC, CONFIDENCE, scale * threshold, maxIters=MAX_ITERATIONS
    )
    if essential is None or essential.shape != (3, 3):
        return None, np.zeros(len(first), bool)
    inverses = [np.linalg.inv(camera) for camera in cameras]
    fundamental = inverses[1].T @ essential @ inverses[0]
    return np.asarray(essential, np.float64), sampson_distances(fundamental, first, second) <= threshold


def _normalise(points: Points, camera: Matrix) -> Matrix:
    """Map pixels to rays (x, y, 1) of a camera, (P, 2)."""
    rays = np.column_stack([points, np.ones(len(points))]) @ np.linalg.inv(camera).T
    return np.ascontiguousarray(rays[:, :2] / rays[:, 2:])


def _is_size(size: tuple[int, int]) -> bool:
    try:
        return len(size) == 2 and all(side >= 1 for side in size)
    except (TypeError, ValueError):  # no pair, or not of numbers, such as the sizes of two images in an array
        return False


def _check_points(first: Points, second: Points) -> tuple[Matrix, Matrix]:
    try:
        a, b = (np.ascontiguousarray(points, np.float64) for points in (first, second))
    except (TypeError, ValueError, RuntimeError) as error:  # the last by tensors with gradients
        raise DoapError(
            "matched points must be numbers, (P, 2) for each image; of a tensor, pass tensor.detach().cpu().numpy()"
        ) from error
    if a.ndim != 2 or a.shape[1:] != (2,) or a.shape != b.shape:
        raise DoapError(f"matched points must be (P, 2) for both images, not {a.shape} and {b.shape}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise DoapError("matched points must be finite; remove those that are NaN or infinite")
    return a, b


def check_cameras(geometry: MatchGeometry, cameras: Cameras | None) -> tuple[Matrix, Matrix] | None:
    """Return one (3, 3) matrix per image for an essential matrix, None for other geometries.

    Raises:
        DoapError: If the geometry is unknown, or needs cameras and has none or the reverse, or they are invalid.
    """
    check_choice("geometry", geometry, SAMPLE_SIZE)
    if geometry != "essential":
        if cameras is not None:
            raise DoapError(f"cameras have no effect on a {geometry} geometry; leave them out, or choose essential")
        return None
    if cameras is None:
        raise DoapError("an essential matrix needs the intrinsics of the images: cameras=K or cameras=(K1, K2)")
    try:
        array = np.asarray(cameras, np.float64)
    except (TypeError, ValueError, RuntimeError) as error:  # the last by tensors with gradients
        raise DoapError(
            "cameras must be numbers: one (3, 3) matrix of intrinsics or two; of a tensor, pass "
            "tensor.detach().cpu().numpy()"
        ) from error
    if array.shape not in ((3, 3), (2, 3, 3)):
        raise DoapError(f"cameras must be one (3, 3) matrix of intrinsics or two, not of shape {array.shape}")
    first, second = np.broadcast_to(array, (2, 3, 3))
    for camera in (first, second):
        is_camera = np.isfinite(camera).all() and camera[0, 0] > 0 < camera[1, 1] and (camera[2] == (0, 0, 1)).all()
        if not is_camera:
            raise DoapError(f"not a matrix of intrinsics [[fx, s, cx], [0, fy, cy], [0, 0, 1]]: {camera.tolist()}")
    return first, second


def log_false_alarms(
    matches: int, inliers: int, size: tuple[int, int], geometry: MatchGeometry, threshold: float
) -> float:
    """Compute log10 NFA = log10 [(n - s) C(n, k) C(k, s) pᵏ⁻ˢ] for k inliers among n matches.

    s is the number of points that determine the model. p is the probability that a random point of the image lies
    within the threshold: in a band along a line across the image (fundamental, essential), or in a disc (homography).
    """
    sample = SAMPLE_SIZE[geometry]
    if inliers <= sample:
        return 0.0
    height, width = size
    area = math.pi * threshold**2 if geometry == "homography" else 2 * threshold * math.hypot(height, width)
    p = min(1.0, area / (height * width))
    return (
        math.log10(matches - sample)
        + _log_choose(matches, inliers)
        + _log_choose(inliers, sample)
        + (inliers - sample) * math.log10(p)
    )


def _log_choose(n: int, k: int) -> float:
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(10)
