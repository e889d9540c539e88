"""LIOP."""

import ctypes.util

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import doap
from doap import Descriptor, DoapError
from doap.types import Grey


@pytest.fixture
def model() -> Descriptor:
    try:
        return doap.load("liop")
    except DoapError as error:
        pytest.skip(str(error))


@pytest.fixture
def patches(photo: Grey) -> NDArray[np.uint8]:
    return np.stack([photo[y : y + 41, 2 * y : 2 * y + 41] for y in range(0, 200, 10)])


def test_unit_vectors_of_the_authors_size(model: Descriptor, patches: NDArray[np.uint8]) -> None:
    vectors = doap.describe_patches(patches, model)
    assert vectors.shape == (20, 144)
    assert (vectors >= 0).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert np.isfinite(doap.describe_patches(np.full((1, 41, 41), 200, np.uint8), model)).all()


def test_it_is_invariant_to_rotation_and_brightness(model: Descriptor, patches: NDArray[np.uint8]) -> None:
    vectors = doap.describe_patches(patches, model)
    rotated = doap.describe_patches(np.rot90(patches, axes=(1, 2)).copy(), model)
    assert (vectors * rotated).sum(1).min() > 0.999
    # Floats, because halved integers would be rounded, which changes the order in smooth patches.
    dimmed = model(torch.from_numpy(patches) / 2 + 20).numpy()
    assert (vectors * dimmed).sum(1).min() > 0.999
    assert (vectors * np.roll(vectors, 10, axis=0)).sum(1).mean() < 0.7


def test_without_vlfeat_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes.util, "find_library", lambda _: "libm.so.6")
    with pytest.raises(DoapError, match=r"^liop needs VLFeat's C library; [^\n]*apt install libvlfeat1$"):
        doap.load("liop")
