"""Nodes around a network in onnxruntime, against torch and NumPy."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, checker, helper
from onnxruntime import InferenceSession

from doap.bridges.onnx.patch_nodes import add_descriptors, add_input
from doap.networks.descriptor import pack_bits, to_input
from doap.networks.int8.graph_builder import GraphBuilder
from doap.networks.l2net import L2Net
from doap.types import Grey, Kind


def open_input(size: int, surroundings: int = 0) -> InferenceSession:
    graph = GraphBuilder()
    values = add_input(graph, "patches", size, surroundings)
    inputs = [helper.make_tensor_value_info("patches", TensorProto.UINT8, ["N", "H", "W"])]
    outputs = [helper.make_tensor_value_info(values, TensorProto.FLOAT, ["N", size, size])]
    model = graph.build("resize", inputs, outputs)
    checker.check_model(model, full_check=True)
    return InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def open_descriptors(kind: Kind, dimensions: int) -> InferenceSession:
    graph = GraphBuilder()
    add_descriptors(graph, "activations", kind, dimensions, "descriptors")
    inputs = [helper.make_tensor_value_info("activations", TensorProto.FLOAT, ["N", dimensions])]
    type_ = TensorProto.FLOAT if kind == "real" else TensorProto.UINT8
    outputs = [helper.make_tensor_value_info("descriptors", type_, ["N", None])]
    return InferenceSession(graph.build("output", inputs, outputs).SerializeToString())


@pytest.mark.parametrize("size", [32, 42])
def test_resizing_is_that_of_torch(size: int, photo: Grey) -> None:
    session = open_input(size)
    for height, width in ((1, 1), (7, 7), (32, 32), (42, 42), (65, 65), (200, 200), (20, 90)):
        patches = np.stack([photo[row : row + height, row : row + width] for row in range(5)])
        (resized,) = session.run(None, {"patches": patches})
        values = torch.from_numpy(patches).float()[:, None]
        expected = F.interpolate(values, (size, size), mode="bilinear", antialias=True)[:, 0]
        np.testing.assert_allclose(resized, expected.numpy(), atol=2e-4)
    patches = np.ascontiguousarray(photo[:size, :size])[None]
    np.testing.assert_array_equal(session.run(None, {"patches": patches})[0], patches)  # exactly
    assert session.run(None, {"patches": np.zeros((0, 50, 50), np.uint8)})[0].shape == (0, size, size)


def test_small_patches_are_padded_for_a_network_of_three_extents(photo: Grey) -> None:
    session = open_input(128, surroundings=2)
    network = L2Net(16, width=8, surroundings=2)
    for side in (1, 20, 64, 65, 95, 96, 128, 200):
        patches = np.stack([photo[row : row + side, row : row + side] for row in range(5)])
        (values,) = session.run(None, {"patches": patches})
        np.testing.assert_allclose(values, to_input(torch.from_numpy(patches), network)[:, 0].numpy(), atol=2e-4)
    patches = np.ascontiguousarray(photo[:128, :128])[None]
    np.testing.assert_array_equal(session.run(None, {"patches": patches})[0], patches)  # exactly
    for side in (64, 128):
        assert session.run(None, {"patches": np.zeros((0, side, side), np.uint8)})[0].shape == (0, 128, 128)


def test_vectors_have_unit_length_and_a_zero_vector_stays() -> None:
    activations = np.random.default_rng(0).normal(size=(9, 16)).astype(np.float32)
    activations[3] = 0
    (vectors,) = open_descriptors("real", 16).run(None, {"activations": activations})
    np.testing.assert_allclose(vectors, F.normalize(torch.from_numpy(activations)).numpy(), atol=1e-7)


@pytest.mark.parametrize("count", [0, 1, 9])
def test_bits_are_packed_as_by_numpy(count: int) -> None:
    activations = np.random.default_rng(0).normal(size=(count, 24)).astype(np.float32)
    activations[:, 5] = 0  # not a bit
    (packed,) = open_descriptors("binary", 24).run(None, {"activations": activations})
    np.testing.assert_array_equal(packed, np.packbits(activations > 0, axis=1))
    np.testing.assert_array_equal(packed, pack_bits(torch.from_numpy(activations) > 0).numpy())
