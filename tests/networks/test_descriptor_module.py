"""A descriptor is used as any torch module: other types, gradients, copies, processes, compilers and exports."""

import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import doap
from doap.networks.architecture import Architecture, build_network
from doap.networks.baselines.deepdesc import DeepDesc
from doap.networks.baselines.desdis import DesDis
from doap.networks.baselines.matchnet import MatchNet
from doap.networks.baselines.tfeat import HardTFeat, TFeat
from doap.networks.descriptor import Descriptor
from doap.networks.inference import optimize_for_inference
from doap.networks.network import PatchNetwork
from doap.types import Kind

NETWORKS: dict[str, PatchNetwork] = {
    "l2net": build_network(Architecture(width=4, dimensions=16)),
    "l2net-mean": build_network(Architecture(network="l2net-mean", width=4, dimensions=16)),
    "cs-l2net": build_network(Architecture(network="cs-l2net", width=4, dimensions=16)),
    "cs-l2net-mean": build_network(Architecture(network="cs-l2net-mean", width=4, dimensions=16)),
    "hynet": build_network(Architecture(network="hynet", width=4, dimensions=16)),
    "residual": build_network(Architecture(network="residual", width=4, dimensions=16)),
    "tiny": build_network(Architecture(network="tiny", width=8, dimensions=16)),
    "windows": build_network(Architecture(network="windows", width=8, dimensions=16)),
    "windows, two matrices": build_network(Architecture(network="windows", width=8, dimensions=256)),
    "tiny, two matrices": build_network(Architecture(network="tiny", width=8, dimensions=256)),
    "l2net-st": build_network(Architecture(width=4, dimensions=16, transformer=True)),
    "tiny-st": build_network(Architecture(network="tiny", width=8, dimensions=16, transformer=True)),
}
BASELINES: dict[str, PatchNetwork] = {
    "DesDis": DesDis(8),
    "TFeat": TFeat(),
    "HardTFeat": HardTFeat(),
    "MatchNet": MatchNet(),
    "DeepDesc": DeepDesc(),
}
EVERY = [*NETWORKS, *BASELINES]
FORMS = [("real", False), ("binary", True)]


def model(name: str, kind: Kind = "real", fast: bool = False) -> Descriptor:
    network = copy.deepcopy({**NETWORKS, **BASELINES}[name])
    with torch.no_grad():
        for number, parameter in enumerate(network.parameters()):  # no longer the initial ones and zeros
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)), alpha=0.01)
    descriptor = Descriptor(network.eval(), kind, 12.0, name)
    return optimize_for_inference(descriptor, torch.float32).eval() if fast else descriptor.eval()


def patches(descriptor: Descriptor, count: int = 6) -> Tensor:
    """Return (N, S, S) uint8 patches with structure, so that no activation is close to 0 by chance alone."""
    small = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 255
    size = descriptor.input_size
    return nn.functional.interpolate(small, (size, size), mode="bilinear")[:, 0].to(torch.uint8)


def assert_alike(actual: Tensor, expected: Tensor, atol: float = 1e-5) -> None:
    """Compare real descriptors up to rounding, binary ones bit by bit."""
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    if actual.dtype == torch.uint8:
        flipped = np.unpackbits(actual.numpy() ^ expected.numpy())
        assert flipped.mean() < 0.01  # activations close to 0
    else:
        torch.testing.assert_close(actual, expected, atol=atol, rtol=0)


@pytest.mark.parametrize("name", EVERY)
@torch.no_grad()
def test_shapes_and_types_of_patches_do_not_matter(name: str) -> None:
    descriptor = model(name)
    pixels = patches(descriptor)
    expected = descriptor(pixels)
    assert expected.shape == (6, descriptor.network.dimensions)
    assert expected.dtype == torch.float32
    for dtype in (torch.uint8, torch.float16, torch.bfloat16, torch.float32):  # all represent 0..255 exactly
        assert torch.equal(descriptor(pixels.to(dtype)), expected)
        assert torch.equal(descriptor(pixels[:, None].to(dtype)), expected)
    assert_alike(descriptor(pixels.double()), expected)


@pytest.mark.parametrize("name", EVERY)
@torch.no_grad()
def test_models_may_be_converted_to_other_types(name: str) -> None:
    pixels = patches(model(name), 2)
    exact = model(name).double()(pixels.double())
    assert exact.dtype == torch.float64
    tolerances = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-4}
    conversions = model(name).half(), model(name).bfloat16(), model(name).float()
    for converted, (dtype, tolerance) in zip(conversions, tolerances.items(), strict=True):
        vectors = converted(pixels)
        assert vectors.dtype == torch.float32
        assert (1 - (vectors.double() * exact).sum(1)).max() < tolerance
        assert torch.equal(model(name).to(dtype)(pixels), vectors)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_reach_patches_and_weights(name: str) -> None:
    descriptor = model(name).double()
    pixels = patches(descriptor, 2).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda values: descriptor(values)[:, :2], (pixels,), fast_mode=True, atol=1e-4)
    descriptor(pixels)[:, 0].sum().backward()
    assert pixels.grad is not None
    assert pixels.grad.abs().max() > 0
    assert all(parameter.grad is not None for parameter in descriptor.parameters())


@pytest.mark.parametrize(("kind", "fast"), FORMS)
@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_copies_and_pickles_describe_alike(name: str, kind: Kind, fast: bool) -> None:
    descriptor = model(name, kind, fast)
    pixels = patches(descriptor)
    for other in (copy.deepcopy(descriptor), pickle.loads(pickle.dumps(descriptor))):
        assert torch.equal(other(pixels), descriptor(pixels))
        assert (other.name, other.extent, other.kind) == (descriptor.name, descriptor.extent, descriptor.kind)
    fresh = copy.deepcopy(descriptor)
    for parameter in fresh.parameters():
        nn.init.zeros_(parameter)
    fresh.load_state_dict(descriptor.state_dict())
    assert torch.equal(fresh(pixels), descriptor(pixels))


def test_another_process_gives_the_same_descriptors(tmp_path: Path) -> None:
    """The model is pickled, as for a pool of processes; the child is not a fork."""
    names = ["doap-demo-128", "doap-demo-256b"]
    models = [doap.load(name) for name in names] + [doap.load(names[0], fast=False)]
    pixels = patches(models[0], 20)
    (tmp_path / "task.pickle").write_bytes(pickle.dumps((models, pixels)))
    child = (
        "import pickle, sys, doap\n"
        "models, pixels = pickle.load(open(sys.argv[1], 'rb'))\n"
        "pickle.dump([doap.describe_patches(pixels.numpy(), model) for model in models], open(sys.argv[2], 'wb'))"
    )
    subprocess.run([sys.executable, "-c", child, tmp_path / "task.pickle", tmp_path / "out.pickle"], check=True)
    for actual, descriptor in zip(pickle.loads((tmp_path / "out.pickle").read_bytes()), models, strict=True):
        expected = doap.describe_patches(pixels.numpy(), descriptor)
        if descriptor.kind == "binary":
            assert np.unpackbits(actual ^ expected).mean() < 0.005
        else:  # on ARM, convolutions depend in the last digits on what a process has computed before
            np.testing.assert_allclose(actual, expected, atol=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(("kind", "fast"), FORMS)
@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_a_trace_describes_batches_of_any_size(name: str, kind: Kind, fast: bool) -> None:
    descriptor = model(name, kind, fast)
    example = patches(descriptor, 3)
    traced: Any = torch.jit.trace(descriptor, example, check_trace=False)  # type: ignore[no-untyped-call]
    stream = io.BytesIO()
    torch.jit.save(traced, stream)
    stream.seek(0)
    pixels = patches(descriptor, 7)
    loaded: Any = torch.jit.load(stream)  # type: ignore[no-untyped-call]
    assert_alike(loaded(pixels), descriptor(pixels))


@pytest.mark.parametrize(("kind", "fast"), FORMS)
@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_an_export_describes_batches_of_any_size(name: str, kind: Kind, fast: bool) -> None:
    descriptor = model(name, kind, fast)
    batch = {"patches": {0: torch.export.Dim("batch", min=1, max=4096)}}
    exported = torch.export.export(descriptor, (patches(descriptor, 3),), dynamic_shapes=batch).module()
    for count in (2, 7):
        pixels = patches(descriptor, count)
        assert_alike(exported(pixels), descriptor(pixels))


@pytest.mark.parametrize(
    ("name", "backend"), [("l2net", "eager"), ("tiny", "aot_eager"), ("hynet", "eager"), ("l2net-st", "eager")]
)
@pytest.mark.parametrize("kind", ["real", "binary"])
@torch.no_grad()
def test_a_compiled_model_describes_alike(name: str, kind: Kind, backend: str) -> None:
    torch._dynamo.reset()
    descriptor = model(name, kind, fast=name != "l2net")
    compiled = torch.compile(descriptor, backend=backend, fullgraph=True)
    for count in (3, 7):
        pixels = patches(descriptor, count)
        assert_alike(compiled(pixels), descriptor(pixels))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("kind", ["real", "binary"])
@pytest.mark.parametrize("name", ["l2net", "cs-l2net", "hynet", "residual", "tiny", "windows"])
@torch.no_grad()
def test_onnxruntime_describes_alike(name: str, kind: Kind, tmp_path: Path) -> None:
    """The exact form is exported: the fast one holds operations of this processor."""
    runtime: Any = pytest.importorskip("onnxruntime")
    descriptor = model(name, kind, fast=False)
    path = tmp_path / "model.onnx"
    torch.onnx.export(
        descriptor,
        (patches(descriptor, 3).float(),),
        path,
        input_names=["patches"],
        dynamic_axes={"patches": {0: "batch"}},
        dynamo=False,
    )
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    pixels = patches(descriptor, 7)
    (actual,) = session.run(None, {"patches": pixels.float().numpy()})
    assert_alike(torch.from_numpy(actual), descriptor(pixels), atol=1e-4)


def test_kornia_describes_local_affine_frames_with_a_model() -> None:
    feature: Any = pytest.importorskip("kornia.feature")
    descriptor = doap.load("doap-demo-128", fast=False)
    image = torch.rand(1, 1, 60, 60, generator=torch.Generator().manual_seed(0))
    frames = torch.tensor([[[[9.0, 0, 30], [0, 9, 28]], [[0, 8, 25], [-8, 0, 30]]]])
    vectors = feature.LAFDescriptor(descriptor, descriptor.input_size)(255 * image, frames)[0]
    cut = feature.extract_patches_from_pyramid(255 * image, frames, descriptor.input_size)[0, :, 0]
    torch.testing.assert_close(vectors, descriptor(cut))
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(2))
