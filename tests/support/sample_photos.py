"""Photos that come with scikit-image."""

import cv2
import numpy as np
import skimage

from doap.types import Grey


def sample_photo(name: str) -> Grey:
    """Return a colour photo of `skimage.data` as grey."""
    return np.asarray(cv2.cvtColor(getattr(skimage.data, name)(), cv2.COLOR_RGB2GRAY), np.uint8)
