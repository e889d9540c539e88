from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from doap import PatchSet
from doap.cli.main import app
from doap.datasets.sets.frame_set import FrameSet, encode
from doap.evaluation.alignment.benchmark import transformer_of
from doap.images.frames import detect_dog
from doap.networks.architecture import Architecture, build_network
from doap.networks.descriptor import Descriptor
from doap.networks.registry import save
from support.command_line import Doap


def save_model(path: Path, architecture: Architecture) -> Path:
    descriptor = Descriptor(build_network(architecture), "real", 12.0, path.stem)
    for parameter in transformer_of(descriptor).prediction.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, std=0.5)
    save(descriptor, path, architecture)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_model(tmp_path / "mine.safetensors", Architecture(dimensions=8, width=2, transformer=True))


@pytest.fixture
def zeros_model(tmp_path: Path) -> Path:
    architecture = Architecture(dimensions=8, width=2, transformer=True, transformer_padding="zeros")
    return save_model(tmp_path / "zeros.safetensors", architecture)


@pytest.fixture
def patches(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 32, 32), dtype=np.uint8)
    PatchSet([pixels], np.arange(24) // 4).save(tmp_path / "set")
    return tmp_path / "set"


def test_help_has_an_example() -> None:
    result = CliRunner().invoke(app, ["show", "alignment", "--help"])
    assert result.exit_code == 0
    assert "Example: doap show alignment" in " ".join(result.output.split())


def test_a_patch_set(model: Path, patches: Path, tmp_path: Path) -> None:
    figure = tmp_path / "out" / "figure.png"
    options = ["--data", str(patches), "-o", str(figure), "--groups", "3", "--seed", "4"]
    result = CliRunner().invoke(app, ["show", "alignment", str(model), *options])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == "correlation of patches, 6 groups of PatchSet(24 patches of 32x32, 6 groups, 1 sequence):"
    names = [line.split(":")[0].strip() for line in lines[1:4]]
    assert names == ["original", "aligned, borders repeated", "aligned the same, zeros beyond"]
    assert all("within a group" in line and "between groups" in line for line in lines[1:4])
    assert lines[4] == f"3 of the groups in {figure}"
    with Image.open(figure) as image:
        assert image.width > 900


def test_a_second_model_trained_with_zero_padding(
    model: Path, zeros_model: Path, patches: Path, tmp_path: Path
) -> None:
    options = ["--data", str(patches), "-o", str(tmp_path / "figure.png"), "--zeros-model", str(zeros_model)]
    result = CliRunner().invoke(app, ["show", "alignment", str(model), *options])
    assert result.exit_code == 0, result.output
    names = [line.split(":")[0].strip() for line in result.output.splitlines()[1:4]]
    assert names == ["original", "aligned, trained with repeated borders", "aligned, trained with zero padding"]


def test_a_frame_set(model: Path, photo: np.ndarray, tmp_path: Path) -> None:
    frames = detect_dog(photo, 6)
    zeros = np.zeros(len(frames), np.int64)
    FrameSet([encode(photo)], ["camera"], zeros, frames, np.arange(len(frames)), zeros, zeros).save(tmp_path / "frames")
    options = ["--data", str(tmp_path / "frames"), "-o", str(tmp_path / "figure.png")]
    result = CliRunner().invoke(app, ["show", "alignment", str(model), *options])
    assert result.exit_code == 0, result.output
    assert "5 of the groups in" in result.output
    assert (tmp_path / "figure.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("doap-demo-128", "--data", "set", "-o", "a.png"), "doap-demo-128: has no Spatial Transformer"),
        (("mine.safetensors", "--data", "nowhere", "-o", "a.png"), "nowhere"),
        (("mine.safetensors", "--data", "set", "-o", "a.doc"), "figures are written as"),
        (("yours.safetensors", "--data", "set", "-o", "a.png"), "no such file"),
        (
            ("mine.safetensors", "--data", "set", "-o", "a.png", "--zeros-model", "mine.safetensors"),
            "mine: give a model trained with transformer_padding: zeros here",
        ),
    ],
)
@pytest.mark.usefixtures("model", "patches")
def test_an_error_is_one_line(doap: Doap, arguments: tuple[str, ...], message: str) -> None:
    status, _, error = doap("show", "alignment", *arguments)
    assert (status, error.count("\n")) == (1, 1)
    assert message in error
    assert not Path("a.png").exists()
