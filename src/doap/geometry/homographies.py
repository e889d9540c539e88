"""Homographies acting on points."""

import numpy as np
from numpy.typing import NDArray


def transform_points(points: NDArray[np.floating], homography: NDArray[np.float64]) -> NDArray[np.float64]:
    """Send (…, 2) points through a 3x3 homography."""
    sent = points @ homography[:, :2].T + homography[:, 2]
    return np.asarray(sent[..., :2] / sent[..., 2:], np.float64)
