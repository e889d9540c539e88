import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import doap
from doap.errors import DoapError
from doap.images.extraction import extract_patches
from doap.images.frames import detect_dog
from doap.networks import registry
from doap.networks.architecture import Architecture, build_network
from doap.networks.descriptor import Descriptor, describe_patches
from doap.networks.inference import optimize_for_inference
from doap.networks.int8 import Int8Network, calibrate, quantize
from doap.networks.int8.network import BATCH
from doap.types import Grey

CALIBRATED = ["doap-128", "doap-256b", "doap-tiny-128", "doap-tiny-256b", "doap-demo-128", "doap-demo-256b"]


@pytest.fixture(scope="module")
def patches(photo: Grey) -> NDArray[np.uint8]:
    return extract_patches(photo, detect_dog(photo, 150), 32, 12.0)


@pytest.mark.parametrize("name", [*CALIBRATED, "doap-large-128"])
def test_descriptors_are_close_to_those_of_floats(name: str, patches: NDArray[np.uint8]) -> None:
    patches = patches if name in CALIBRATED else patches[:30]  # a large network takes long in floats
    exact, model = doap.load(name, fast=False), doap.load(name, int8=True)
    assert (model.name, model.kind, model.extents) == (exact.name, exact.kind, exact.extents)
    assert (model.input_size, model.network.surroundings) == (exact.input_size, exact.network.surroundings)
    floats, integers = describe_patches(patches, exact), describe_patches(patches, model)
    assert (floats.shape, floats.dtype) == (integers.shape, integers.dtype)
    if model.kind == "real":
        cosines = (floats * integers).sum(1)
        assert cosines.mean() > 0.998
        assert cosines.min() > 0.98
        np.testing.assert_allclose(np.linalg.norm(integers, axis=1), 1, atol=1e-5)
    else:
        different = np.unpackbits(floats ^ integers, axis=1).sum(1)
        assert different.mean() < 0.02 * 256


def test_a_descriptor_does_not_depend_on_its_batch(patches: NDArray[np.uint8]) -> None:
    model = doap.load("doap-demo-128", int8=True)
    many = np.concatenate([patches, patches])[: BATCH + 3]
    together = model(torch.from_numpy(many))
    assert together.shape == (BATCH + 3, 128)
    alone = torch.cat([model(torch.from_numpy(many[i : i + 1])) for i in (0, BATCH - 1, BATCH, BATCH + 2)])
    torch.testing.assert_close(together[[0, BATCH - 1, BATCH, BATCH + 2]], alone)
    assert describe_patches(many[:0], model).shape == (0, 128)


def test_bright_patches_of_low_contrast_are_normalised_exactly(patches: NDArray[np.uint8]) -> None:
    faint = torch.from_numpy(patches).float() / 100 + 252  # contrast of two grey levels
    with torch.no_grad():
        floats = doap.load("doap-demo-128", fast=False)(faint)
        integers = doap.load("doap-demo-128", int8=True)(faint)
    assert (floats * integers).sum(1).min() > 0.98


def test_constant_patches_are_described() -> None:
    model = doap.load("doap-demo-128", int8=True)
    assert np.isfinite(describe_patches(np.full((3, 32, 32), 200, np.uint8), model)).all()


def test_copies_and_pickles_give_the_same_descriptors(patches: NDArray[np.uint8]) -> None:
    model = doap.load("doap-demo-256b", int8=True)
    expected = describe_patches(patches, model)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), optimize_for_inference(model)):
        assert (describe_patches(patches, other) == expected).all()


def test_the_number_of_threads_changes_nothing(patches: NDArray[np.uint8]) -> None:
    model, threads = doap.load("doap-demo-128", int8=True), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = describe_patches(patches, model)
        torch.set_num_threads(2)
        two = describe_patches(patches, model)
    finally:
        torch.set_num_threads(threads)
    assert (one == two).all()


def test_other_devices_training_and_gradients_are_refused(patches: NDArray[np.uint8]) -> None:
    model = doap.load("doap-demo-128", int8=True)
    with pytest.raises(DoapError, match="runs on a CPU only"):
        model.to("meta")
    with pytest.raises(DoapError, match="cannot be trained"):
        model.train()
    with pytest.raises(DoapError, match="has no gradient"):
        model(torch.from_numpy(patches).float().requires_grad_())
    with pytest.raises(ValueError, match="Int8Network takes"):
        model.network(torch.zeros(2, 1, 31, 31))
    assert model.to("cpu").eval() is model


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_describes() -> None:
    """The child ends as those of multiprocessing do, because the clean-up of onnxruntime would hang."""
    code = """
import os, sys, numpy, doap
model = doap.load("doap-demo-128", int8=True)
patches = numpy.random.default_rng(0).integers(0, 256, (200, 32, 32), dtype=numpy.uint8)
expected = doap.describe_patches(patches, model)
process = os.fork()
if not process:
    os._exit(0 if (doap.describe_patches(patches, model) == expected).all() else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    assert subprocess.run([sys.executable, "-c", code], env=environment, timeout=120, check=False).returncode == 0


def small_model() -> Descriptor:
    return Descriptor(build_network(Architecture(network="tiny", width=8)).eval(), "real", 12.0, "small")


def test_an_own_model_is_quantised_after_calibration(patches: NDArray[np.uint8]) -> None:
    model = small_model()
    integers = quantize(model, calibrate(model, patches))
    cosines = (describe_patches(patches, integers) * describe_patches(patches, model)).sum(1)
    assert cosines.min() > 0.99
    assert isinstance(integers.network, Int8Network)


def test_ranges_are_checked(tmp_path: Path) -> None:
    model, path = small_model(), tmp_path / "small.safetensors"
    registry.save(model, path, Architecture(network="tiny", width=8))
    with pytest.raises(DoapError, match="small: its card has no activation ranges; run: doap calibrate"):
        doap.load(path, int8=True)
    for ranges in ([1.0], [1.0, 2.0, 3.0, 0.0], [1.0, 2.0, 3.0, float("nan")]):
        with pytest.raises(DoapError, match="activation ranges must be 4 positive numbers"):
            quantize(model, ranges)


@pytest.mark.parametrize("name", ["doap-st-128", "rootsift"])
def test_other_networks_have_no_int8_form(name: str) -> None:
    with pytest.raises(DoapError, match=f"{name}: .* has no int8 form"):
        doap.load(name, int8=True)


def test_subclasses_of_l2net_are_refused() -> None:
    model = Descriptor(build_network(Architecture(network="l2net-mean", width=8)), "real", 12.0, "published")
    with pytest.raises(DoapError, match="MeanL2Net has no int8 form"):
        quantize(model, [1.0] * 7)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "doap.networks.int8.graph", raising=False)
    with pytest.raises(DoapError, match=r"onnx is not installed; run: pip install 'doap\[onnx\]'"):
        doap.load("doap-demo-128", int8=True)


def test_the_model_is_a_module() -> None:
    model = doap.load("doap-demo-128", int8=True)
    assert isinstance(model, nn.Module)
    assert not list(model.parameters())
    assert not model.training


def test_an_int8_model_cannot_be_saved(tmp_path: Path) -> None:
    card = registry.find_card("doap-tiny-128")
    assert card is not None
    with pytest.raises(DoapError, match="load it with fast=False and int8=False, and give the arch"):
        doap.save(doap.load("doap-tiny-128", int8=True), tmp_path / "a.safetensors", card.architecture)
    assert not list(tmp_path.iterdir())
