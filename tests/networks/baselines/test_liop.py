import ctypes.util

import numpy as np
import pytest
import torch

import doap
from doap import Descriptor, DoapError


@pytest.fixture
def model() -> Descriptor:
    try:
        return doap.load("liop")
    except DoapError as error:
        pytest.skip(str(error))


@pytest.fixture
def patches(photo: np.ndarray) -> np.ndarray:
    return np.stack([photo[y : y + 41, 2 * y : 2 * y + 41] for y in range(0, 200, 10)])


def test_unit_vectors_of_the_authors_size(model: Descriptor, patches: np.ndarray) -> None:
    found = doap.describe(patches, model)
    assert found.shape == (20, 144)
    assert (found >= 0).all()
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    assert np.isfinite(doap.describe(np.full((1, 41, 41), 200, np.uint8), model)).all()


def test_order_outlives_rotation_and_light_but_not_another_patch(model: Descriptor, patches: np.ndarray) -> None:
    found = doap.describe(patches, model)
    turned = doap.describe(np.rot90(patches, axes=(1, 2)).copy(), model)
    assert (found * turned).sum(1).min() > 0.999
    # Given as floats: halved bytes would be rounded, and many orders in smooth patches lost.
    dimmed = model(torch.from_numpy(patches) / 2 + 20).numpy()
    assert (found * dimmed).sum(1).min() > 0.999
    assert (found * np.roll(found, 10, axis=0)).sum(1).mean() < 0.7


def test_without_vlfeat_the_fault_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes.util, "find_library", lambda _: "libm.so.6")
    with pytest.raises(DoapError, match=r"^liop needs VLFeat's C library; [^\n]*apt install libvlfeat1$"):
        doap.load("liop")
