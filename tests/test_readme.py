"""The README: its code runs, it shows the main commands; tests/docs checks commands and links of all pages."""

from pathlib import Path

import pytest
import skimage
import torch
from PIL import Image

from doap.networks.card import read_card
from doap.networks.registry import find_weights, list_models
from support.pages import fenced_blocks, page_commands

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for side, image in zip(("left", "right"), skimage.data.stereo_motorcycle()[:2], strict=True):
        Image.fromarray(image[100:400, 100:550]).save(f"{side}.jpg", quality=95)
    code, objective = fenced_blocks(README, "python")
    names: dict[str, object] = {"outputs": torch.randn(8, 128), "groups": torch.arange(8) // 2}
    exec(code, names)
    assert int(capsys.readouterr().out.split()[0]) > 200
    assert len([line for line in code.splitlines() if line]) <= 10
    exec(objective, names)
    assert isinstance(names["loss"], torch.Tensor)
    assert 0 < float(names["loss"]) < 1


def test_the_readme_shows_the_main_commands() -> None:
    commands = {" ".join(line.split()[1:3]) for line in page_commands(README) if line.startswith("doap ")}
    expected = ("match", "describe", "colmap", "hloc", "dbow", "export", "data build", "train", "report")
    for command in (*expected, "eval oxford", "eval hpatches", "eval pairs"):
        assert any(actual.startswith(command) for actual in commands), command


def test_the_licence_names_the_photos_without_one() -> None:
    notes = {note for name in list_models() if (note := read_card(find_weights(name)).origin.photos_without_licence)}
    assert notes
    assert all(note in README for note in notes)
