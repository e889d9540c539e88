"""A small COLMAP project of doap, and the `colmap` program."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import skimage
from PIL import Image

from doap.bridges.colmap import ProjectSettings, build_project
from doap.folders import DescribeSettings, MatchSettings
from folders.conftest import open_in_process

Colmap = Callable[..., str]
MAX_ERROR = 0.00375  # 1.5 pixels of images of 400
SETTINGS = ProjectSettings(
    DescribeSettings("doap-tiny-128", max_keypoints=300), match=MatchSettings(), max_error=MAX_ERROR, refine=False
)


def stay_in_process(patch: pytest.MonkeyPatch) -> None:
    """Describe and match in this process; starting workers takes seconds."""
    for module in ("doap.folders.describing", "doap.bridges.colmap.project"):
        patch.setattr(f"{module}.open_engine", open_in_process)
    patch.setattr("doap.folders.describing.start_loading", lambda *_: None)


@pytest.fixture(scope="session")
def in_process() -> Iterator[None]:
    """Describe and match in this process."""
    with pytest.MonkeyPatch.context() as patch:
        stay_in_process(patch)
        yield


def write_photos(folder: Path) -> Path:
    """Write a stereo pair in subfolders, a crop of another size, and an image without keypoints."""
    left, right, _ = skimage.data.stereo_motorcycle()
    left, right = left[100:400, 100:500], right[100:400, 100:500]
    photos = {"a/left.png": left, "b/right.png": right, "crop.png": left[20:280, 30:370]}
    for name, photo in {**photos, "blank.png": np.full((60, 80), 90, np.uint8)}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.ascontiguousarray(photo)).save(path)
    return folder


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory, in_process: None) -> Path:  # noqa: ARG001 - makes it faster
    """A project of four photos, which are in `photos`; do not change it."""
    folder = tmp_path_factory.mktemp("colmap")
    build_project(write_photos(folder / "photos"), folder, SETTINGS)
    return folder


@pytest.fixture(scope="session")
def colmap() -> Colmap:
    """Run the `colmap` program with a command and options, and return its output."""
    program = shutil.which("colmap")
    if program is None:
        pytest.skip("the colmap program is not installed")

    def run(command: str, **options: object) -> str:
        arguments = [word for name, value in options.items() for word in (f"--{name.replace('__', '.')}", str(value))]
        environment = os.environ | {"QT_QPA_PLATFORM": "offscreen"}
        ended = subprocess.run(
            [str(program), command, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout
        return ended.stdout

    return run
