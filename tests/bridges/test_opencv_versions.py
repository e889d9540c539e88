"""The tests of the bridge under OpenCV 4."""

import os
import subprocess
import sys
from pathlib import Path

import cv2
import pytest

from support.packages import install

ROOT = Path(__file__).parents[2]
OPENCV_4 = "opencv-contrib-python-headless==4.14.0.94"


@pytest.mark.slow
@pytest.mark.skipif(not cv2.__version__.startswith("5."), reason="runs under OpenCV 4 already")
def test_the_bridge_works_with_opencv_4(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(install(tmp_path, OPENCV_4))}
    version = [sys.executable, "-c", "import cv2; print(cv2.__version__)"]
    assert subprocess.check_output(version, env=environment, text=True, timeout=60).startswith("4.14")
    tests = ["tests/bridges/test_opencv.py", "tests/bridges/test_opencv_matching.py"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not slow", "-x", *tests]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
