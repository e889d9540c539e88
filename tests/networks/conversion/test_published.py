import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import kornia
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

import doap
from doap.images.extraction import extract_patches
from doap.images.frames import detect_dog
from doap.networks.architecture import Architecture
from doap.networks.baselines.tfeat import TFeat
from doap.networks.card import Origin, read_card
from doap.networks.conversion import binarise, convert
from doap.networks.inference import InferenceNetwork, optimize_for_inference
from doap.onednn import keep_enabled
from doap.types import Grey
from support.published_networks import DIMENSIONS, PUBLISHED, WIDTH, PublishedNetwork, hardnet, hynet, randomise


@pytest.fixture(scope="module")
def patches(photo: Grey) -> NDArray[np.uint8]:
    """Patches of a photo, noise, and noise of two grey levels, which has a standard deviation of one half."""
    generator = np.random.default_rng(0)
    noise = [generator.integers(low, high, (20, 32, 32), dtype=np.uint8) for low, high in ((0, 256), (100, 102))]
    return np.concatenate([extract_patches(photo, detect_dog(photo, 100), 32, 12.0), *noise])


def save_checkpoint(path: Path, tensors: dict[str, torch.Tensor]) -> Path:
    torch.save({"epoch": 10, "state_dict": tensors}, path)
    return path


def convert_random(layout: str, folder: Path) -> tuple[PublishedNetwork, Path]:
    """Return a published network of random values, and its checkpoint as converted."""
    network = randomise(PUBLISHED[layout]())
    return network, convert(save_checkpoint(folder / "published.pth", network.state_dict()), folder / "new.safetensors")


@pytest.mark.parametrize("layout", PUBLISHED)
def test_a_converted_model_gives_the_published_descriptors(
    tmp_path: Path, layout: str, patches: NDArray[np.uint8]
) -> None:
    network, path = convert_random(layout, tmp_path)
    model = doap.load(path, fast=False)
    with torch.no_grad():
        expected = network(torch.from_numpy(patches)[:, None].float()).numpy()
    assert np.abs(expected).max() > 0.1
    for form in (model, optimize_for_inference(model, torch.float32)):
        actual = doap.describe_patches(patches, form)
        np.testing.assert_allclose(actual[:-20], expected[:-20], atol=1e-5)
        np.testing.assert_allclose(actual[-20:], expected[-20:], atol=1e-4)  # here the deviation's epsilon matters
    architecture = read_card(tmp_path / "new.safetensors").architecture
    settings = {"network": "hynet" if layout == "HyNet" else "l2net", "dimensions": DIMENSIONS, "width": WIDTH}
    assert architecture == Architecture.model_validate(settings)


@pytest.mark.parametrize("layout", PUBLISHED)
def test_the_fast_form_rounds_no_more_than_the_published_network_in_its_dtype(
    tmp_path: Path, layout: str, patches: NDArray[np.uint8]
) -> None:
    network, path = convert_random(layout, tmp_path)
    fast = doap.load(path)
    assert isinstance(fast.network, InferenceNetwork)
    inputs = torch.from_numpy(patches)[:, None].float()
    with torch.no_grad(), keep_enabled():
        expected, rounded = network(inputs).numpy(), network(inputs, fast.network.precision).numpy()
    errors = 1 - (doap.describe_patches(patches, fast) * expected).sum(1)
    assert errors.max() <= (1 - (rounded * expected).sum(1)).max() + 1e-6
    assert errors.max() < (0.02 if layout == "HyNet" else 0.005)  # random maps of HyNet may be near 0 before their norm


@pytest.mark.parametrize("layout", ["HardNet", "SOSNet"])
def test_a_patch_with_one_deviating_pixel_differs_by_a_hundredth_at_most(tmp_path: Path, layout: str) -> None:
    network, path = convert_random(layout, tmp_path)
    model = doap.load(path, fast=False)
    patch = np.full((1, 32, 32), 100, np.uint8)
    patch[0, 15, 16] = 101
    with torch.no_grad():
        expected = network(torch.from_numpy(patch)[:, None].float())
    np.testing.assert_allclose(doap.describe_patches(patch, model), expected, atol=0.01)


@pytest.mark.parametrize("name", ["HardNet", "SOSNet", "HyNet"])
def test_the_same_descriptors_as_kornia(tmp_path: Path, name: str, patches: NDArray[np.uint8]) -> None:
    network = getattr(kornia.feature, name)(pretrained=False)
    with torch.no_grad():
        for _ in range(3):
            network(torch.rand(16, 1, 32, 32) * 255)
    torch.save(network.eval().state_dict(), tmp_path / "kornia.pth")
    model = doap.load(convert(tmp_path / "kornia.pth", tmp_path / "new.safetensors"), fast=False)
    with torch.no_grad():
        expected = network(torch.from_numpy(patches)[:, None].float())
    np.testing.assert_allclose(doap.describe_patches(patches, model), expected, atol=1e-4)


def old_format(network: torch.nn.Module, path: Path) -> None:
    """Write a checkpoint as of 2017: before the archive format, without counters of batches."""
    tensors = {name: value for name, value in network.state_dict().items() if "tracked" not in name}
    torch.save({"epoch": 10, "state_dict": tensors}, path, _use_new_zipfile_serialization=False)


FORMATS: dict[str, Callable[[torch.nn.Module, Path], object]] = {
    "bare.pth": lambda network, path: torch.save(network.state_dict(), path),
    "old.pth.tar": old_format,
    "half.bin": lambda network, path: torch.save(network.half().state_dict(), path),
    "plain.safetensors": lambda network, path: save_file(network.state_dict(), path),
}


@pytest.mark.parametrize("build", [hardnet, hynet])
@pytest.mark.parametrize("name", FORMATS)
def test_formats_of_checkpoints(tmp_path: Path, name: str, build: Callable[[], torch.nn.Module]) -> None:
    network = build()
    FORMATS[name](network, tmp_path / name)
    model = doap.load(convert(tmp_path / name, tmp_path / "new.safetensors"), fast=False)
    assert (
        model.network.get_parameter("layers.2.weight" if build is hynet else "layers.3.weight").dtype == torch.float32
    )


def test_the_card_has_what_is_known_and_nothing_else(tmp_path: Path) -> None:
    source = save_checkpoint(tmp_path / "HardNet++.pth", hardnet().state_dict())
    card = read_card(convert(source, tmp_path / "plain.safetensors"))
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    history = f"converted from the layout of HardNet: HardNet++.pth, SHA-256 {digest}"
    assert (card.name, card.kind, card.extent, card.extents) == ("plain", "real", 12.0, {})
    assert card.origin == Origin(notes={"conversion": history})
    output = convert(source, tmp_path / "full.safetensors", "HardNet++", 6.0, "MIT", "Liberty and HPatches")
    card = read_card(output)
    assert (card.name, card.extent, card.origin.licence, card.origin.data) == (
        "HardNet++",
        6.0,
        "MIT",
        "Liberty and HPatches",
    )
    binary = read_card(binarise(output, tmp_path / "bits.safetensors"))
    assert binary.origin.notes["conversion"].startswith(f"{history}; binarised by the sign")


def changed(**changes: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """Return HardNet's tensors with some replaced, added or removed; `__` in a name stands for a dot."""
    tensors = hardnet().state_dict()
    for name, value in changes.items():
        if value is None:
            del tensors[name.replace("__", ".")]
        else:
            tensors[name.replace("__", ".")] = value
    return tensors


WRONG: dict[str, tuple[Callable[[], dict[str, torch.Tensor]], str]] = {
    "missing tensor": (lambda: changed(features__3__weight=None), "not those of a known network .HardNet"),
    "extra tensor": (lambda: changed(features__30__weight=torch.ones(3)), "not those of a known network"),
    "wrong shape": (lambda: changed(features__3__weight=torch.ones(4, 4, 5, 5)), "not those of a known network"),
    "wrong statistics": (lambda: changed(features__4__running_mean=torch.ones(5)), "not those of a known network"),
    "scalars": (lambda: changed(features__0__weight=torch.tensor(1.0)), "not those of a known network"),
    "no channels": (lambda: changed(features__0__weight=torch.ones(0, 1, 3, 3)), "not those of a known network"),
    "not finite": (
        lambda: changed(features__0__weight=torch.full((4, 1, 3, 3), torch.nan)),
        r"layers\.0\.weight holds NaN or infinity",
    ),
    "negative variance": (
        lambda: changed(features__1__running_var=torch.full((4,), -1.0)),
        r"layers\.1\.running_\w+ holds NaN or infinity",
    ),
    "no variance": (
        lambda: changed(features__1__running_var=torch.full((4,), -1e-5)),
        r"layers\.1\.running_var has variances of 0",
    ),
    "too wide for memory": (
        lambda: changed(features__0__weight=torch.ones(4096, 1, 3, 3)),
        "not those of a known network",
    ),
    "overflow": (
        lambda: changed(features__0__weight=torch.full((4, 1, 3, 3), 1e300, dtype=torch.float64)),
        r"layers\.0\.weight holds NaN or infinity",
    ),
    "HyNet too wide": (
        lambda: {**hynet().state_dict(), "layer1.2.weight": torch.ones(5000, 1, 3, 3)},
        "not those of a known network",
    ),
    "other block": (lambda: {"layer9.0.weight": torch.ones(3)}, "not those of a known network"),
    "empty HyNet": (lambda: {"layer1.0.weight": torch.ones(3)}, "not those of a known network"),
    "HyNet of wrong shape": (
        lambda: {**hynet().state_dict(), "layer1.0.eps": torch.ones(2)},
        "not those of a known network",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_other_tensors_are_refused_in_one_line_and_nothing_is_written(tmp_path: Path, case: str) -> None:
    make, message = WRONG[case]
    source = save_checkpoint(tmp_path / "wrong.pth", make())
    with pytest.raises(doap.DoapError, match=message) as caught:
        convert(source, tmp_path / "new" / "x.safetensors")
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.pth"]


def test_our_own_models_and_baselines_are_refused(tmp_path: Path) -> None:
    own = doap.load("doap-demo-128", fast=False)
    doap.save(own, tmp_path / "own.safetensors", Architecture(network="tiny", width=48))
    save_file(TFeat().state_dict(), tmp_path / "tfeat.safetensors")
    (tmp_path / "hub").mkdir()
    shutil.copy(tmp_path / "own.safetensors", tmp_path / "hub" / "model.safetensors")
    shutil.copy(tmp_path / "own.json", tmp_path / "hub" / "config.json")
    messages = {"own": "has a card", "hub/model": "has a card", "tfeat": "needs no card; use it as it is"}
    for name, message in messages.items():
        with pytest.raises(doap.DoapError, match=message):
            convert(tmp_path / f"{name}.safetensors", tmp_path / "new.safetensors")


def test_an_existing_output_is_not_replaced(tmp_path: Path) -> None:
    source = save_checkpoint(tmp_path / "a.pth", hardnet().state_dict())
    (tmp_path / "b.safetensors").write_text("mine")
    with pytest.raises(doap.DoapError, match="exists already"):
        convert(source, tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_text() == "mine"
