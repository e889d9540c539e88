"""Graphs of patches in OpenCV's dnn module."""

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

import doap


@pytest.mark.skipif(int(cv2.__version__.split(".")[0]) < 5, reason="OpenCV 4 reads no graphs with dynamic sizes")
@pytest.mark.parametrize("name", ["doap-tiny-128", "doap-tiny-256b"])
def test_opencv_runs_the_graph_of_patches(exported: Callable[..., Path], name: str) -> None:
    network = cv2.dnn.readNetFromONNX(str(exported(name)))
    model = doap.load(name, fast=False)
    for count, size in ((5, 32), (3, 47)):
        patches = np.random.default_rng(size).integers(0, 256, (count, size, size), dtype=np.uint8)
        network.setInput(patches)
        descriptors, expected = network.forward(), model(torch.from_numpy(patches)).numpy(force=True)
        assert descriptors.dtype == expected.dtype
        np.testing.assert_allclose(descriptors, expected, rtol=0, atol=1e-5 if model.kind == "real" else 0)
