"""The example runs without arguments."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "onnx_describe.py"


@pytest.mark.slow
def test_the_example_matches_a_stereo_pair(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE), "--keypoints", "200", "--model", "doap-tiny-256b"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True).stdout
    first, second = shown.splitlines()
    assert int(first.split(", ")[1].split()[0]) > 60  # of 200 mutual matches
    assert float(second.split("%")[0]) > 95
    assert [path.name for path in tmp_path.iterdir()] == ["doap-tiny-256b-image.onnx"]
