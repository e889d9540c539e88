"""The Python of docs/bridges/slam.md, and the example."""

import re
import subprocess
import sys
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


@pytest.mark.slow
def test_the_example_retrieves_the_other_crop(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples/slam_vocabulary.py"), "--keypoints", "200"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    pairs = re.findall(r"^(\w+)-(\d)\.png: most similar (\w+)-(\d)\.png", done.stdout, re.MULTILINE)
    assert len(pairs) == 8
    assert sum(query == found for query, _, found, _ in pairs) >= 7
    assert re.search(r"TH_LOW = \d+, TH_HIGH = \d+ in ORBmatcher.cc", done.stdout)
    assert (tmp_path / "slam-example" / "voc.txt").exists()
