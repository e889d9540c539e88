"""The example and the code of the page run."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLE, PAGE = ROOT / "examples" / "onnx_describe.py", ROOT / "docs" / "bridges" / "onnx.md"


@pytest.mark.slow
def test_the_example_matches_a_stereo_pair(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE), "--keypoints", "200", "--model", "doap-tiny-256b"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True).stdout
    first, second = shown.splitlines()
    assert int(first.split(", ")[1].split()[0]) > 60  # of 200 mutual matches
    assert float(second.split("%")[0]) > 95
    assert [path.name for path in tmp_path.iterdir()] == ["doap-tiny-256b-image.onnx"]


@pytest.mark.slow
def test_the_code_of_the_page_runs(
    exported: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copy(exported("doap-128"), tmp_path / "doap-128.onnx")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec("".join(blocks), {})
    assert capsys.readouterr().out.splitlines()[:2] == ["(100, 128)", "doap-128 Apache-2.0 32 17.0"]
