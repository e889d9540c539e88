"""Speed of the models on this machine."""

import time
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from doap.choices import DEFAULT_DETECTOR
from doap.demo import photos
from doap.images.detectors import find_frames
from doap.images.extraction import extract_patches
from doap.images.reading import read_grey
from doap.networks.descriptor import describe_patches
from doap.networks.registry import list_models, load
from doap.types import StepProgress

PATCHES = 512
WARM_UP = 64  # patches that are described first: kernels are chosen then


def measure_speeds(device: str, progress: StepProgress) -> dict[str, float]:
    """Return the number of patches per second that each shipped model describes, on photographic patches.

    Args:
        device: Device of the models.
        progress: Called as `progress(step, done, total)` per model.
    """
    names = list_models()
    speeds = {}
    for done, name in enumerate(names):
        progress(name, done, len(names))
        speeds[name] = _measure(name, device)
    return speeds


def _measure(name: str, device: str) -> float:
    model = load(name, device)
    patches = _patches(model.input_size, model.extent_for(DEFAULT_DETECTOR))
    describe_patches(patches[:WARM_UP], model)
    start = time.perf_counter()
    describe_patches(patches, model)
    return len(patches) / (time.perf_counter() - start)


@lru_cache(4)
def _patches(size: int, extent: float) -> NDArray[np.uint8]:
    image = read_grey(photos.TEST[0])
    return extract_patches(image, find_frames(DEFAULT_DETECTOR, image, PATCHES).frames, size, extent)
