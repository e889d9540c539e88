"""The Python of docs/bridges/slam.md."""

import re
from pathlib import Path

import numpy as np
import pytest
import skimage
from PIL import Image

ROOT = Path(__file__).parents[3]


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "photos").mkdir()
    for index in range(3):
        crop = skimage.data.camera()[40 * index : 40 * index + 200, :240]
        Image.fromarray(np.ascontiguousarray(crop)).save(tmp_path / "photos" / f"{index}.png")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/bridges/slam.md").read_text(), re.DOTALL)
    assert len(blocks) == 1
    exec(compile(blocks[0], "slam.md", "exec"), {})
    shown = re.fullmatch(r"Vocabulary\((\d+) words of 256 bits, k = 10, L = 3\) (0\.\d+)\n", capsys.readouterr().out)
    assert shown is not None
    assert int(shown[1]) > 50
    assert Path("voc.dbow3").stat().st_size > 0
