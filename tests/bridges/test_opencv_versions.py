"""The tests of the bridge under OpenCV 4, and the scripts of examples/."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
OPENCV_4 = "opencv-contrib-python-headless==4.14.0.94"


def install(package: str) -> Path:
    """Return a folder with a package, which later runs find again; skip the test if it cannot be downloaded."""
    folder = Path(tempfile.gettempdir()) / f"doap-tests-{os.getuid()}" / package
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", f"{temporary}/site"]
        done = subprocess.run([*command, package], capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            pytest.skip(f"{package} cannot be installed from the package index")
        Path(temporary, "site").rename(folder)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(not cv2.__version__.startswith("5."), reason="runs under OpenCV 4 already")
def test_the_bridge_works_with_opencv_4() -> None:
    environment = os.environ | {"PYTHONPATH": str(install(OPENCV_4))}
    version = [sys.executable, "-c", "import cv2; print(cv2.__version__)"]
    assert subprocess.check_output(version, env=environment, text=True, timeout=60).startswith("4.14")
    tests = ["tests/bridges/test_opencv.py", "tests/bridges/test_opencv_matching.py"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not slow", "-x", *tests]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def run_example(folder: Path, *arguments: str) -> str:
    command = [sys.executable, str(ROOT / "examples" / arguments[0]), *arguments[1:]]
    return subprocess.check_output(command, cwd=folder, text=True, timeout=120)


@pytest.mark.slow
def test_the_examples_run(tmp_path: Path) -> None:
    printed = run_example(tmp_path, "opencv_match.py", "--model", "doap-tiny-128", "--keypoints", "1000")
    sift, ours = (int(line.split(" inliers")[0].split()[-1]) for line in printed.splitlines())
    assert ours > sift > 100
    assert cv2.imread(str(tmp_path / "opencv_match.png")) is not None

    printed = run_example(tmp_path, "opencv_stitch.py", "--model", "doap-tiny-256b", "-o", "joined.png")
    panorama = cv2.imread(str(tmp_path / "joined.png"))
    assert panorama is not None
    assert panorama.shape[1] > 600
    assert 600 < float(printed.split("focal length ")[1].split()[0]) < 800
    assert np.mean(panorama.max(2) > 0) > 0.8
