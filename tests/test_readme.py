"""The README: its code runs, its commands parse, its links work."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import skimage
import torch
import typer
from PIL import Image

from doap.cli.main import app
from doap.networks.card import read_card
from doap.networks.registry import find_weights, list_models

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str, language: str) -> list[str]:
    fenced = (block.split("\n", 1) for block in text.split("```")[1::2])
    return [content for name, content in fenced if name == language]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield the page and the words of every `doap` command in a code block."""
    for page in PAGES:
        for block in blocks(page.read_text(), ""):
            lines = block.replace("\\\n", " ").splitlines()
            for line in lines:
                if line.startswith("doap "):
                    yield str(page.relative_to(ROOT)), shlex.split(line, comments=True)[1:]


COMMANDS = list(commands())


def find_command(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that the first words name, and the remaining words."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for side, image in zip(("left", "right"), skimage.data.stereo_motorcycle()[:2], strict=True):
        Image.fromarray(image[100:400, 100:550]).save(f"{side}.jpg", quality=95)
    (code,) = blocks(README, "python")
    names: dict[str, object] = {"outputs": torch.randn(8, 128), "groups": torch.arange(8) // 2}
    exec(code, names)
    assert int(capsys.readouterr().out.split()[0]) > 200
    assert isinstance(names["loss"], torch.Tensor)
    assert 0 < float(names["loss"]) < 1
    assert len([line for line in code.splitlines() if line]) <= 10


def test_the_readme_shows_the_main_commands() -> None:
    verbs = {" ".join(words[:2]) for page, words in COMMANDS if page == "README.md"}
    expected = ("match", "describe", "colmap", "hloc", "dbow", "export", "data build", "train", "report")
    for verb in (*expected, "eval oxford", "eval hpatches", "eval pairs"):
        assert any(found.startswith(verb) for found in verbs), verb


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=[" ".join(words[:3]) for _, words in COMMANDS])
def test_every_command_in_the_documentation_is_one(page: str, words: list[str]) -> None:
    command, remaining = find_command([word for word in words if word != "…"])
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in remaining:
        if re.match(r"--?[a-z]", word):
            assert word.partition("=")[0] in options, f"{page}: doap {' '.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_licence_names_the_photos_without_one() -> None:
    notes = {note for name in list_models() if (note := read_card(find_weights(name)).origin.photos_without_licence)}
    assert notes
    assert all(note in README for note in notes)
