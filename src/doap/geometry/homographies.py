"""Homographies acting on points."""

import numpy as np
from numpy.typing import NDArray


def transform_points(points: NDArray[np.floating], homography: NDArray[np.float64]) -> NDArray[np.float64]:
    """Map (…, 2) points (x, y) by a 3x3 homography.

    >>> transform_points(np.array([[1.0, 2.0]]), np.diag([2.0, 2.0, 1.0])).tolist()
    [[2.0, 4.0]]
    """
    mapped = points @ homography[:, :2].T + homography[:, 2]
    return np.asarray(mapped[..., :2] / mapped[..., 2:], np.float64)


def invert_homography(homography: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the homography of the opposite direction.

    >>> invert_homography(np.diag([2.0, 2.0, 1.0])).tolist()
    [[0.5, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    return np.asarray(np.linalg.inv(homography), np.float64)
