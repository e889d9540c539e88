"""Descriptors in clusters, and a vocabulary of them."""

import numpy as np
import pytest
from numpy.typing import NDArray

from doap.bridges.dbow import Vocabulary, train_vocabulary

Bits = NDArray[np.uint8]


def sample_images(images: int = 12, size: int = 150, bits: int = 256) -> list[Bits]:
    """Return descriptors near some centres; each image has a few of the centres, and two descriptors are equal."""
    random = np.random.default_rng(1)
    centres = random.integers(0, 2, (60, bits), np.uint8)
    result = []
    for _ in range(images):
        near = centres[random.permutation(60)[:20][random.integers(0, 20, size)]]
        result.append(np.packbits(near ^ (random.random((size, bits)) < 0.15), axis=1))
        result[-1][1] = result[-1][0]
    return result


@pytest.fixture(scope="session")
def images() -> list[Bits]:
    return sample_images()


@pytest.fixture(scope="session")
def vocabulary(images: list[Bits]) -> Vocabulary:
    return train_vocabulary(images, k=5, levels=3)
