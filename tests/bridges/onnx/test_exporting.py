"""Exported models against PyTorch, on real patches."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from onnxruntime import InferenceSession
from safetensors.torch import save_file

import doap
from doap.bridges.onnx import export_model
from doap.errors import DoapError
from doap.images.frames import detect_dog
from doap.networks.architecture import Architecture, build_network
from doap.networks.baselines import PUBLISHED
from doap.networks.descriptor import Descriptor
from doap.networks.int8.operands import sums_are_exact
from doap.networks.network import PatchNetwork
from doap.types import Descriptors, Frames, Grey

Exported = Callable[..., Path]

LOAD_WITHOUT_DOAP = """
import sys
sys.modules["doap"] = None
import numpy as np, torch
path = sys.argv[1]
run = torch.export.load(path).module() if path.endswith(".pt2") else torch.jit.load(path)
arrays = np.load(sys.argv[2])
np.savez(sys.argv[3], **{name: run(torch.from_numpy(arrays[name])).numpy() for name in arrays.files})
"""


@pytest.fixture(scope="module")
def frames(photo: Grey) -> Frames:
    return detect_dog(photo, 100)


def run(path: Path, **inputs: NDArray[Any]) -> Descriptors:
    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    descriptors: Descriptors = session.run(["descriptors"], inputs)[0]
    return descriptors


def assert_equal_descriptors(actual: Descriptors, expected: Descriptors) -> None:
    """Compare bits exactly and floats to 1e-5."""
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=0 if actual.dtype == np.uint8 else 1e-5)


def assert_describes_patches(path: Path, model: Descriptor, photo: Grey, frames: Frames) -> None:
    """Compare with the model on patches of its input size, a smaller and a larger size, one patch and none."""
    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    for size, count in ((model.input_size, 40), (20, 9), (65, 9), (65, 1), (65, 0)):
        patches = doap.extract_patches(photo, frames[:count], size, 12.0)
        assert_equal_descriptors(session.run(None, {"patches": patches})[0], doap.describe_patches(patches, model))


# Models of the same network as another one are exported once.
OTHERS = [name for name in doap.list_models() if not name.startswith(("doap-tiny-256b", "doap-128-open", "doap-demo"))]


@pytest.mark.parametrize(
    "name",
    ["doap-tiny-256b", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)],
)
def test_onnxruntime_describes_patches_as_pytorch(name: str, exported: Exported, photo: Grey, frames: Frames) -> None:
    assert_describes_patches(exported(name), doap.load(name, fast=False), photo, frames)


@pytest.mark.parametrize("name", ["doap-tiny-128", pytest.param("doap-256b", marks=pytest.mark.slow)])
def test_onnxruntime_describes_frames_as_describe_keypoints(
    name: str, exported: Exported, photo: Grey, frames: Frames
) -> None:
    image = np.ascontiguousarray(photo[:, :401])
    model = doap.load(name, fast=False)
    path = exported(name, graph="image")
    for count in (100, 1, 0):
        descriptors = run(path, image=image, frames=frames[:count])
        expected = doap.describe_keypoints(image, frames[:count], model)
        cut = doap.extract_patches(image, frames[:count], model.input_size, model.extent_for("dog"))
        # A pixel near a half may be rounded otherwise and moves its descriptor: few patches have one.
        same = np.isclose(descriptors, expected.descriptors, rtol=0, atol=1e-5).all(1)
        assert (~same).sum() <= 0.03 * count
        assert_equal_descriptors(descriptors[same], doap.describe_patches(cut, model)[same])


def test_the_model_says_what_it_is(exported: Exported) -> None:
    path = exported("doap-tiny-256b")
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    card = json.loads(metadata.pop("card"))
    assert (card["name"], card["architecture"]["network"]) == ("doap-tiny-256b", "windows")
    assert metadata == {
        "name": "doap-tiny-256b",
        "doap_version": doap.__version__,
        "licence": "Apache-2.0",
        "kind": "binary",
        "dimensions": "256",
        "graph": "patches",
        "precision": "fp32",
        "input_size": "32",
        "extent": "17.0",
    }
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 18)]
    assert not any(tensor.external_data for tensor in model.graph.initializer)
    assert str(Path.cwd()).encode() not in path.read_bytes()


def test_paths_may_be_strings_and_models_are_names_or_paths(tmp_path: Path) -> None:
    path = str(tmp_path / "model.pt")
    metadata = export_model("doap-tiny-256b", path, precision="fp16")
    assert metadata["kind"] == "binary"
    script = torch.jit.load(path)  # type: ignore[no-untyped-call]
    assert script(torch.zeros(2, 32, 32, dtype=torch.uint8)).shape == (2, 32)
    with pytest.raises(DoapError, match="the model must be a path or a name, not Descriptor"):
        export_model(doap.load("doap-tiny-128", fast=False), path)  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["graph", "precision", "format"])
def test_unknown_names_are_refused(option: str, tmp_path: Path) -> None:
    with pytest.raises(DoapError, match=f"^{option} int8x: unknown; choose one of "):
        export_model("doap-tiny-128", tmp_path / "model.onnx", **{option: "int8x"})  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_the_extent_is_part_of_the_graph(tmp_path: Path, photo: Grey, frames: Frames) -> None:
    metadata = export_model(
        "doap-tiny-128", tmp_path / "a.onnx", graph="image", precision="int8-without-vnni", extent=9
    )
    assert metadata["extent"] == "9.0"
    descriptors = run(tmp_path / "a.onnx", image=photo, frames=frames)
    expected = doap.describe_keypoints(photo, frames, doap.load("doap-tiny-128", int8=True), extent=9).descriptors
    assert np.einsum("nd,nd->n", descriptors, expected).min() > 0.999


needs_vnni = pytest.mark.skipif(not sums_are_exact("u8s8"), reason="onnxruntime saturates sums on CPUs without VNNI")


@pytest.mark.parametrize("precision", [pytest.param("int8", marks=needs_vnni), "int8-without-vnni"])
@pytest.mark.parametrize("name", ["doap-tiny-128", "doap-tiny-256b"])
def test_int8_is_that_of_load(name: str, precision: str, exported: Exported, photo: Grey, frames: Frames) -> None:
    patches = doap.extract_patches(photo, frames, 32, 12.0)
    descriptors = run(exported(name, precision=precision), patches=patches)
    expected = doap.describe_patches(patches, doap.load(name, int8=True))
    if descriptors.dtype == np.uint8:
        assert np.unpackbits(descriptors ^ expected).mean() < 1e-3
    else:
        assert np.einsum("nd,nd->n", descriptors, expected).min() > 0.9999


@pytest.mark.slow
@pytest.mark.parametrize("name", ["doap-tiny-256b", "doap-st-128"])
def test_fp16_is_close_and_half_as_large(name: str, exported: Exported, photo: Grey, frames: Frames) -> None:
    path, model = exported(name, precision="fp16"), doap.load(name, fast=False)
    patches = doap.extract_patches(photo, frames, model.input_size, 12.0)
    descriptors, expected = run(path, patches=patches), doap.describe_patches(patches, model)
    assert (descriptors.shape, descriptors.dtype) == (expected.shape, expected.dtype)
    if model.kind == "binary":
        assert np.unpackbits(descriptors ^ expected).mean() < 5e-3
    else:
        assert np.einsum("nd,nd->n", descriptors, expected).min() > 0.999
    assert path.stat().st_size < 0.6 * exported(name).stat().st_size


@pytest.mark.parametrize(
    ("name", "suffix"), [("doap-tiny-128", "pt"), pytest.param("doap-st-256b", "pt2", marks=pytest.mark.slow)]
)
def test_programs_of_torch_run_without_doap(
    name: str, suffix: str, exported: Exported, photo: Grey, frames: Frames, tmp_path: Path
) -> None:
    model = doap.load(name, fast=False)
    patches = {
        f"{size}-{count}": doap.extract_patches(photo, frames[:count], size, 12.0)
        for size, count in ((model.input_size, 60), (20, 9), (65, 9), (65, 1), (65, 0))
    }
    np.savez(tmp_path / "patches.npz", **patches)  # type: ignore[arg-type]
    arguments = [exported(name, suffix), tmp_path / "patches.npz", tmp_path / "descriptors.npz"]
    command = [sys.executable, "-c", LOAD_WITHOUT_DOAP, *map(str, arguments)]
    subprocess.run(command, check=True, timeout=120, cwd=tmp_path)
    descriptors = np.load(tmp_path / "descriptors.npz")
    for key, cut in patches.items():
        assert_equal_descriptors(descriptors[key], doap.describe_patches(cut, model))


@pytest.mark.parametrize("suffix", ["pt", "pt2"])
def test_programs_of_torch_pad_small_patches_for_three_extents(
    suffix: str, photo: Grey, frames: Frames, tmp_path: Path
) -> None:
    architecture = Architecture(dimensions=16, width=4, surround=2)
    model = Descriptor(with_statistics(build_network(architecture), photo, frames), "real", 12.0, "three")
    doap.save(model, tmp_path / "three.safetensors", architecture)
    path = tmp_path / f"three.{suffix}"
    export_model(tmp_path / "three.safetensors", path)
    program = torch.jit.load(path) if suffix == "pt" else torch.export.load(path).module()  # type: ignore[no-untyped-call]
    for size, count in ((128, 9), (96, 9), (95, 9), (64, 1), (64, 0), (20, 9)):
        patches = doap.extract_patches(photo, frames[:count], size, 12.0)
        descriptors = program(torch.from_numpy(patches)).numpy()
        assert_equal_descriptors(descriptors, doap.describe_patches(patches, model))


def with_statistics(network: PatchNetwork, photo: Grey, frames: Frames) -> PatchNetwork:
    """Give a network the running statistics of real patches."""
    patches = doap.extract_patches(photo, frames, network.input_size, 12.0)
    with torch.no_grad():
        for _ in range(3):
            network.train()(torch.from_numpy(patches).float()[:, None])
    return network.eval()


@pytest.mark.slow
@pytest.mark.parametrize(
    "network", ["l2net-mean", "cs-l2net", "cs-l2net-mean", "hynet", "residual", "unbounded transformer"]
)
def test_all_architectures_are_exported(network: str, photo: Grey, frames: Frames, tmp_path: Path) -> None:
    # A residual network of width 4 has maps of 16 channels, of which onnxruntime with AVX-512 refuses an empty batch.
    architecture = Architecture.model_validate(
        {"transformer": True, "transformer_padding": "zeros", "dimensions": 16, "width": 4}
        if network == "unbounded transformer"
        else {"network": network, "dimensions": 16, "width": 16 if network == "residual" else 4}
    )
    model = Descriptor(with_statistics(build_network(architecture), photo, frames), "real", 12.0, "new")
    doap.save(model, tmp_path / "new.safetensors", architecture)
    export_model(tmp_path / "new.safetensors", tmp_path / "new.onnx")
    assert_describes_patches(tmp_path / "new.onnx", model, photo, frames)


@pytest.mark.slow
@pytest.mark.parametrize("build", PUBLISHED[::2], ids=["TFeat", "DesDis", "MatchNet"])
def test_published_networks_are_exported(
    build: Callable[[], PatchNetwork], photo: Grey, frames: Frames, tmp_path: Path
) -> None:
    network = with_statistics(build(), photo, frames)
    save_file(network.state_dict(), tmp_path / "published.safetensors")
    export_model(tmp_path / "published.safetensors", tmp_path / "published.onnx")
    model = Descriptor(network, "real", 12.0, "published")
    assert_describes_patches(tmp_path / "published.onnx", model, photo, frames[:20])
