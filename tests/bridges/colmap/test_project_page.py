"""The Python of docs/bridges/colmap.md runs as it stands."""

import re
from pathlib import Path

import pytest

from bridges.colmap.conftest import write_photos

PAGE = Path(__file__).parents[3] / "docs/bridges/colmap.md"


@pytest.mark.usefixtures("in_process")
def test_the_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    write_photos(Path("photos"))
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(block, {})
    images, keypoints, verified = map(int, capsys.readouterr().out.split())
    assert images == 4
    assert keypoints > 1000
    assert verified > 200
