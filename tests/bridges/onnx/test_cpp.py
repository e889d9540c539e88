"""The C++ example: built by the commands of its README, it gives the descriptors of Python."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

import doap
from doap.features.keypoint_input import to_frames
from doap.types import Grey

EXAMPLE = Path(__file__).parents[3] / "examples" / "cpp"
pytestmark = pytest.mark.slow


def run(folder: Path, *command: object) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=240, check=False)


def build(folder: Path, program: str) -> None:
    """Run the commands of the README that start with the name of a program."""
    if not shutil.which(program):
        pytest.skip(f"needs {program}")
    lines = (folder / "README.md").read_text().splitlines()
    for line in (line for line in lines if line.startswith(f"{program} ")):
        built = run(folder, "bash", "-c", line)
        assert built.returncode == 0, built.stdout + built.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example, with headers and library of onnxruntime."""
    copy = Path(shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("cpp") / "example"))
    made = run(copy, sys.executable, "get_onnxruntime.py", "onnxruntime")
    if made.returncode:
        pytest.skip(made.stderr.strip())
    return copy


@pytest.fixture(scope="module")
def describe(folder: Path) -> Path:
    """The program."""
    build(folder, "g++")
    return folder / "describe"


@pytest.mark.parametrize("name", ["doap-tiny-128", "doap-tiny-256b"])
def test_descriptors_are_those_of_python(
    describe: Path, exported: Callable[..., Path], tmp_path: Path, photo: Grey, name: str
) -> None:
    graph = exported(name, graph="image")
    image = np.ascontiguousarray(photo[:301, :403])
    keypoints = np.random.default_rng(0).uniform((-9, -9, 0.7, 0), (410, 310, 30, 360), (200, 4))
    Image.fromarray(image).save(tmp_path / "image.pgm")
    np.savetxt(tmp_path / "keypoints.txt", keypoints, "%.17g")
    described = run(tmp_path, describe, graph, "image.pgm", "keypoints.txt", "descriptors.npy")
    assert (described.returncode, described.stdout) == (0, "200 keypoints described\n"), described.stderr
    descriptors = np.load(tmp_path / "descriptors.npy")

    session = onnxruntime.InferenceSession(str(graph))
    (by_python,) = session.run(None, {"image": image, "frames": to_frames(keypoints)})
    np.testing.assert_array_equal(descriptors, by_python)
    by_doap = doap.describe_keypoints(image, keypoints, doap.load(name, fast=False)).descriptors
    if by_doap.dtype == np.uint8:
        difference, same, similar = np.unpackbits(descriptors ^ by_doap, axis=1).sum(1), 0.0, 2.0
    else:
        difference, same, similar = np.abs(descriptors - by_doap).max(1), 1e-5, 1e-3
    # A pixel of a patch that is near half a grey level can be rounded differently.
    assert np.mean(difference <= same) > 0.95
    assert difference.max() <= similar


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "usage: describe GRAPH IMAGE.pgm KEYPOINTS.txt DESCRIPTORS.npy"),
        (("no.onnx", "image.pgm", "none.txt", "out.npy"), "no.onnx"),
        (("no.onnx", "words.txt", "none.txt", "out.npy"), "words.txt: is not a binary PGM image with 8 bit"),
        (("no.onnx", "cut.pgm", "none.txt", "out.npy"), "cut.pgm: is truncated"),
        (("no.onnx", "image.pgm", "words.txt", "out.npy"), "words.txt: is not a text file of x y scale angle"),
    ],
)
def test_an_error_is_one_line(describe: Path, tmp_path: Path, words: tuple[str, ...], error: str) -> None:
    (tmp_path / "image.pgm").write_bytes(b"P5\n2 1\n255\nab")
    (tmp_path / "cut.pgm").write_bytes(b"P5\n2 1\n255\na")
    (tmp_path / "words.txt").write_text("three words only")
    (tmp_path / "none.txt").touch()
    failed = run(tmp_path, describe, *words)
    assert (failed.returncode, failed.stdout, failed.stderr.count("\n")) == (1, "", 1)
    assert error in failed.stderr
    assert not (tmp_path / "out.npy").exists()


def test_cmake_builds_the_program(folder: Path) -> None:
    build(folder, "cmake")
    assert run(folder, folder / "build" / "describe").stderr.startswith("usage")
