"""The Python of docs/bridges/onnx.md."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "bridges" / "onnx.md"


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
    assert capsys.readouterr().out.splitlines()[:2] == ["(100, 128)", "doap-128 Apache-2.0 64 24.0"]
