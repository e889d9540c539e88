import copy
import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from doap import describe_patches
from doap.networks.descriptor import Descriptor, pack_bits, resize_patches
from doap.networks.l2net import L2Net
from doap.types import Kind


def model(kind: Kind, dimensions: int = 16) -> Descriptor:
    return Descriptor(L2Net(dimensions, width=2), kind, 12.0, "test").eval()


PATCHES = np.random.default_rng(0).integers(0, 256, (37, 32, 32), dtype=np.uint8)


def test_bits_are_packed_as_numpy_packs_them() -> None:
    bits = torch.rand(9, 64) > 0.5
    np.testing.assert_array_equal(pack_bits(bits).numpy(), np.packbits(bits.numpy(), axis=1))


def test_real_descriptors_are_unit_vectors_of_the_activations() -> None:
    real = model("real")
    vectors = describe_patches(PATCHES, real)
    assert vectors.dtype == np.float32
    with torch.no_grad():
        activations = real.network(resize_patches(torch.from_numpy(PATCHES), 32)).numpy()
    np.testing.assert_allclose(vectors, activations / np.linalg.norm(activations, axis=1, keepdims=True), atol=1e-6)


def test_binary_descriptors_are_the_signs_of_the_activations() -> None:
    binary = model("binary")
    vectors = describe_patches(PATCHES, binary)
    assert vectors.dtype == np.uint8
    assert vectors.shape == (37, 2)
    with torch.no_grad():
        activations = binary.network(resize_patches(torch.from_numpy(PATCHES), 32)).numpy()
    np.testing.assert_array_equal(np.unpackbits(vectors, axis=1), activations > 0)


@pytest.mark.parametrize("kind", ["real", "binary"])
def test_batches_change_nothing_and_empty_input_is_fine(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    describer = model(kind)
    whole = describe_patches(PATCHES, describer)
    monkeypatch.setattr("doap.networks.descriptor.CPU_BATCH", 5)
    in_batches = describe_patches(PATCHES, describer)
    if kind == "real":
        np.testing.assert_allclose(in_batches, whole, atol=1e-6)
    else:  # the sign of an activation close to 0 may change by rounding
        assert (np.unpackbits(in_batches) != np.unpackbits(whole)).mean() < 0.005
    assert describe_patches(PATCHES[:0], describer).shape == (0, whole.shape[1])


def test_every_module_keeps_its_mode() -> None:
    real = model("real").train()
    frozen = next(module for module in real.modules() if isinstance(module, torch.nn.BatchNorm2d)).eval()
    expected = describe_patches(PATCHES, copy.deepcopy(real).eval())
    np.testing.assert_array_equal(describe_patches(PATCHES, real), expected)
    assert [module for module in real.modules() if not module.training] == [frozen]
    with pytest.raises(RuntimeError):
        describe_patches(PATCHES, real.to("meta"))
    assert real.training


def test_patches_may_be_read_only_or_flipped() -> None:
    real = model("real")
    read_only = PATCHES.copy()
    read_only.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(describe_patches(read_only, real), describe_patches(PATCHES, real))
    np.testing.assert_array_equal(
        describe_patches(PATCHES[:, ::-1], real), describe_patches(PATCHES[:, ::-1].copy(), real)
    )


def test_other_sizes_are_resized_without_aliasing() -> None:
    large = np.kron(PATCHES, np.ones((2, 2), np.uint8))
    resized = resize_patches(torch.from_numpy(large), 32)
    # Halving filters with a triangle over 4 pixels; on doubled pixels this is [1 6 1] / 8.
    padded = np.pad(PATCHES.astype(float), ((0, 0), (1, 1), (1, 1)))
    rows = (padded[:, :-2] + 6 * padded[:, 1:-1] + padded[:, 2:]) / 8
    expected = (rows[:, :, :-2] + 6 * rows[:, :, 1:-1] + rows[:, :, 2:]) / 8
    np.testing.assert_allclose(resized[:, 0, 1:-1, 1:-1], expected[:, 1:-1, 1:-1], atol=1e-3)


@pytest.mark.parametrize("shape", [(32, 32), (37, 32, 20), (37, 2, 32, 32), (37, 1, 1, 32, 32), (37, 1, 32, 20)])
def test_wrong_shapes_are_refused(shape: tuple[int, ...]) -> None:
    expected = rf"patches must be \(N, S, S\) or \(N, 1, S, S\), not {re.escape(str(shape))}"
    for call in (
        lambda: describe_patches(np.zeros(shape, np.uint8), model("real")),
        lambda: model("real")(torch.zeros(shape)),
    ):
        with pytest.raises(ValueError, match=expected):
            call()


@pytest.mark.parametrize("patches", [[[1]], None, 3])
def test_what_is_no_array_is_refused(patches: Any) -> None:
    with pytest.raises(ValueError, match=f"patches must be an array or a tensor, not {type(patches).__name__}"):
        describe_patches(patches, model("real"))


@pytest.mark.parametrize("dtype", [np.int64, np.uint16, np.bool_, np.complex64, object])
def test_wrong_types_are_refused(dtype: type) -> None:
    with pytest.raises(ValueError, match="patches must be uint8 or floating-point, not"):
        describe_patches(PATCHES.astype(dtype), model("real"))
    if dtype is not object:
        with pytest.raises(ValueError, match="patches must be uint8 or floating-point, not"):
            model("real")(torch.from_numpy(PATCHES.astype(dtype)))


@pytest.mark.parametrize("kind", ["real", "binary"])
def test_a_tensor_gives_a_tensor_and_an_array_an_array(kind: Kind) -> None:
    describer = model(kind)
    expected = describe_patches(PATCHES, describer)
    assert isinstance(expected, np.ndarray)
    for patches in (PATCHES[:, None], PATCHES.astype(np.float32), PATCHES.astype(np.float16)):
        np.testing.assert_array_equal(describe_patches(patches, describer), expected)
        tensor = describe_patches(torch.from_numpy(patches), describer)
        np.testing.assert_array_equal(tensor.numpy(), expected)
        assert describe_patches(torch.from_numpy(patches[:0]), describer).shape == (0, expected.shape[1])
    assert not tensor.is_inference()  # may be used in computations with gradients


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("count", [1, 16, 37])
@pytest.mark.parametrize("kind", ["real", "binary"])
def test_overlapped_copies_change_nothing(kind: Kind, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doap.networks.descriptor.GPU_BATCH", 4)
    describer = model(kind).cuda()
    expected = describe_patches(torch.from_numpy(PATCHES[:count]).cuda(), describer)
    assert expected.is_cuda
    actual = describe_patches(PATCHES[:count], describer)
    if kind == "real":
        np.testing.assert_allclose(actual, expected.cpu().numpy(), atol=1e-4)
    else:
        assert (np.unpackbits(actual) != np.unpackbits(expected.cpu().numpy())).mean() < 0.01


def test_bits_come_in_bytes() -> None:
    with pytest.raises(ValueError, match="multiple of 8"):
        model("binary", dimensions=20)
