"""The patch cutter in onnxruntime, against the extraction of patches."""

from functools import cache

import numpy as np
import pytest
from onnx import TensorProto, checker, helper
from onnxruntime import InferenceSession

import doap
from doap.bridges.onnx.cutter_nodes import add_cutter
from doap.images.frames import detect_dog
from doap.networks.int8.graph_builder import GraphBuilder
from doap.types import Frames, Grey

MAX_ROUNDED_OTHERWISE = 1e-3  # fraction of pixels near a half


@cache
def open_cutter(size: int, extent: float) -> InferenceSession:
    graph = GraphBuilder()
    patches = add_cutter(graph, "image", "frames", size, extent)
    inputs = [
        helper.make_tensor_value_info("image", TensorProto.UINT8, ["H", "W"]),
        helper.make_tensor_value_info("frames", TensorProto.FLOAT, ["N", 2, 3]),
    ]
    outputs = [helper.make_tensor_value_info(patches, TensorProto.FLOAT, ["N", size, size])]
    model = graph.build("cutter", inputs, outputs)
    checker.check_model(model, full_check=True)
    return InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def affine_frames(count: int, width: float, height: float) -> Frames:
    """Return frames of scales 0.3 to 200 and any affine shape, in and around an image."""
    random = np.random.default_rng(0)
    shapes = random.normal(size=(count, 2, 2)) * 0.3 * np.exp(random.uniform(0, np.log(700), (count, 1, 1)))
    centres = random.uniform(-0.5, 1.5, (count, 2, 1)) * np.array([[width], [height]])
    return np.concatenate([shapes, centres], 2).astype(np.float32)


def assert_same_patches(image: Grey, frames: Frames, size: int = 32, extent: float = 12.0) -> None:
    (patches,) = open_cutter(size, extent).run(None, {"image": image, "frames": frames})
    expected = doap.extract_patches(image, frames, size, extent)
    assert patches.shape == expected.shape
    differences = np.abs(patches - expected)
    assert differences.max(initial=0) <= 1
    assert (differences > 0).sum() <= MAX_ROUNDED_OTHERWISE * patches.size


@pytest.mark.parametrize(("size", "extent"), [(32, 17.0), (42, 12.0), (64, 6.0)])
def test_patches_of_keypoints_are_the_same(size: int, extent: float, photo: Grey) -> None:
    assert_same_patches(photo, detect_dog(photo, 100), size, extent)


@pytest.mark.parametrize(
    ("height", "width"), [(512, 512), (511, 333), (1, 1), (2, 3), (5, 300), (300, 17), (16, 16), (31, 33)]
)
def test_images_of_any_size_and_all_levels(height: int, width: int, photo: Grey) -> None:
    image = np.ascontiguousarray(photo[:height, :width])
    assert_same_patches(image, affine_frames(60, width, height))


@pytest.mark.parametrize("count", [0, 1])
def test_no_frame_and_one_frame(count: int, photo: Grey) -> None:
    assert_same_patches(photo, detect_dog(photo, 5)[:count])


def test_frames_far_away_give_the_border_and_those_not_finite_are_taken_as_zero(photo: Grey) -> None:
    frames = np.tile(np.array([[4, 0, 100], [0, 4, 100]], np.float32), (5, 1, 1))
    frames[0, 0, 2] = 1e9
    frames[1, 1, 2] = -np.inf
    frames[2, 0, 0] = np.nan
    frames[3, :, :2] *= 1e8
    frames[4, :, :2] = 0
    assert_same_patches(photo, frames)
