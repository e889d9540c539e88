"""MKD."""

import sys

import numpy as np
import pytest
import torch

import doap
from doap import DoapError


def test_as_kornia_describes_it() -> None:
    kornia = pytest.importorskip("kornia.feature")
    model = doap.load("mkd")
    patches = np.random.default_rng(0).integers(0, 256, (9, 32, 32), dtype=np.uint8)
    expected = kornia.MKDDescriptor(whitening=None)(torch.from_numpy(patches[:, None]) / 255)
    vectors = doap.describe_patches(patches, model)
    assert vectors.shape == (9, 238)
    np.testing.assert_allclose(vectors, expected.numpy(), atol=1e-6)


def test_without_kornia_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kornia.feature", None)
    with pytest.raises(DoapError, match=r"^kornia is not installed; run: pip install 'doap\[baselines\]'$"):
        doap.load("mkd")
