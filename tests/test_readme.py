"""The README keeps its promises: its code runs, its commands exist, its figures are the cards'."""

import json
import re
import shlex
from pathlib import Path

import pytest
import skimage
import torch
from PIL import Image
from typer.testing import CliRunner

import doap
from doap.cli.main import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    fenced = (block.split("\n", 1) for block in README.split("```")[1::2])
    return [content for name, content in fenced if name == language]


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for side, image in zip(("left", "right"), skimage.data.stereo_motorcycle()[:2], strict=True):
        Image.fromarray(image).save(f"{side}.jpg", quality=95)
    (code,) = blocks("python")
    names = {"outputs": torch.randn(8, 128), "groups": torch.arange(8) // 2}
    exec(code, names)
    assert int(capsys.readouterr().out.split()[0]) > 300
    assert 0 < float(names["loss"]) < 1
    assert len([line for line in code.splitlines() if line]) <= 10


def test_every_command_in_the_readme_exists() -> None:
    lines = [line.split("#")[0] for block in blocks("") for line in block.splitlines() if line.startswith("doap ")]
    assert len(lines) >= 5
    for line in lines:
        words = shlex.split(line)[1:]
        verb = words[:2] if words[0] in ("data", "eval") else words[:1]
        shown = CliRunner().invoke(app, [*verb, "--help"], env={"COLUMNS": "200"})
        assert shown.exit_code == 0
        for option in (word for word in words if word.startswith("-")):
            assert option in shown.output


@pytest.mark.parametrize("name", ["doap-demo-128", "doap-demo-256b"])
def test_the_figures_of_the_demo_are_those_of_the_shipped_models(name: str) -> None:
    card = json.loads((Path(doap.__file__).parent / "weights" / f"{name}.json").read_text())
    (row,) = re.findall(rf"│ {name} +│ +([\d.]+) │ +([\d.]+) │", README)
    figures = card["origin"]["figures"]
    assert [float(value) for value in row] == [figures[f"doap demo, {key} %"] for key in ("mAP", "correct neighbours")]


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (ROOT / target).exists(), target
