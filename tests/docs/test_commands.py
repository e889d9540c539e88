"""Every command of the documentation runs on small data, or parses and is on a list that says why it does not run."""

import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import typer

from doap.cli.main import app, main
from folders.conftest import InProcess, open_in_process
from support.onnx_operators import table_made_once
from support.pages import PAGES, ROOT, fenced_blocks, page_commands, page_name, read_page

NOT_RUN = {
    r"(?<![\w*-])[A-Z]{3,}(?![\w*])|…|\$| A B C | \[": "a placeholder stands for a choice of the reader",
    r"data download|/shared/|HardNet\+\+|hardnet\.": "downloads, or needs another machine or weights of others",
    r"--device cuda": "needs a GPU",
    r"\b(liberty|phototour|hpatches|romepatches|oxford)\b": "official data: tests/evaluation and tests/training",
    r"^doap (reproduce|study|sweep)": "trains for hours: tests/experiments",
    r"sets/(photos|frames|split|open|val|tilted)|halves|fifth|scenes/|multiview|split/": "many photos: tests/datasets",
    r"^doap train frames-|nested": "large frame sets: tests/training",
    r"^doap (colmap|hloc|dbow)": "other tools: tests/bridges",
    r"--devices 2": "starts processes: tests/training/test_distributed.py",
    r"runs/st/|runs/cs|runs/st$": "trains a large network: tests/training, tests/cli",
    r"^doap demo|^doap app": "tests/demo, tests/app",
}
"""Why commands are not run here, by a pattern of the command."""

RUN_BY_OTHERS = ("docs/bridges/", "docs/campaign.md")  # tests/bridges, tests/campaign
SHORT = ("--set", "epochs=1", "--set", "batch_size=128", "--set", "precision=fp32")
PYTHON_PAGES = (
    "docs/index.md",
    "docs/objective-steps.md",
    "docs/how-to/own-data-set.md",
    "docs/how-to/own-network.md",
    "docs/how-to/own-objective.md",
    "docs/how-to/export.md",
)

COMMANDS = [(page_name(page), line) for page in PAGES for line in page_commands(page.read_text(encoding="utf-8"))]
DOAP_COMMANDS = [(page, line) for page, line in COMMANDS if line.startswith("doap ")]


def strip_comment(line: str) -> str:
    """Return a command without its comment."""
    return re.sub(r"\s+#.*$", "", line)


def reason(line: str) -> str | None:
    """Return why a command is not run here, or None."""
    return next((why for pattern, why in NOT_RUN.items() if re.search(pattern, strip_comment(line))), None)


def runnable() -> dict[str, list[str]]:
    """Return the commands to run, by page."""
    found: dict[str, list[str]] = {}
    for page, line in DOAP_COMMANDS:
        if not page.startswith(RUN_BY_OTHERS) and reason(line) is None:
            found.setdefault(page, []).append(strip_comment(line))
    return found


def short_words(line: str) -> list[str]:
    """Return the words of a command, with small models in place of large ones and trainings of one epoch."""
    words = shlex.split(re.sub(r"\bdoap-(128|256b)\b(?!\.onnx)", r"doap-tiny-\1", line))
    describes = words[1] == "describe" or (words[1] == "match" and words[2].endswith(".jpg"))
    if describes and "--model" not in words:
        return [*words, "--model", "doap-tiny-128"]
    if words[1] != "train":
        return words
    if "--from" in words:  # the recipe must have the network of the model
        return [*words, *SHORT]
    return [*words, *SHORT, "--set", "network=tiny", "--set", "width=8"]


def remove(path: Path) -> None:
    """Remove a file or folder, if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def parse(words: list[str]) -> None:
    """Raise a usage error unless a command and its options exist, and each option that needs a value has one."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    context = command.context_class(command, info_name="doap", resilient_parsing=True)
    command.make_parser(context).parse_args(args=list(words))


class BuildInProcess(InProcess):
    """Engine of builds, which ask for tasks ahead of their results."""

    def map(self, function: Any, tasks: Any, look_ahead: int | None = None, died: Any = None) -> Iterator[Any]:  # noqa: ARG002
        """Run the tasks one after another."""
        return super().map(function, tasks, None, died)


@pytest.fixture(autouse=True, scope="session")
def _table_made_once() -> Iterator[None]:
    with table_made_once():
        yield


@pytest.fixture(autouse=True)
def _in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("folders.describing", "folders.matching"):
        monkeypatch.setattr(f"doap.{module}.open_engine", open_in_process)
    monkeypatch.setattr("doap.datasets.build.building.open_engine", lambda *_, **__: nullcontext(BuildInProcess()))


@pytest.mark.slow
@pytest.mark.parametrize("page", runnable())
def test_the_commands_of_a_page_run(page: str, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page == "docs/how-to/own-data-set.md":
        exec(fenced_blocks(read_page(page), "python")[0], {})
    for line in dict.fromkeys(runnable()[page]):
        words = short_words(line)
        if "-o" in words:
            remove(workspace / words[words.index("-o") + 1])  # made by an earlier command
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code, line
        if "-o" in words:
            assert (workspace / words[words.index("-o") + 1]).exists(), line


@pytest.mark.slow
@pytest.mark.parametrize("page", PYTHON_PAGES)
def test_the_code_of_a_page_runs(page: str, workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert workspace.is_dir()
    for block in fenced_blocks(read_page(page), "python"):
        exec(re.sub(r"\bdoap-(128|256b)\b", r"doap-tiny-\1", block), {})
    assert capsys.readouterr().out


def test_most_kinds_of_commands_are_run() -> None:
    subcommands = {line.split()[1] for lines in runnable().values() for line in lines}
    assert subcommands >= {
        "match",
        "describe",
        "train",
        "eval",
        "data",
        "export",
        "models",
        "recipes",
        "report",
        "convert",
    }
    assert len(runnable()["docs/tutorial.md"]) >= 6


def test_every_reason_is_needed() -> None:
    for pattern in NOT_RUN:
        if "demo" not in pattern:
            assert any(re.search(pattern, strip_comment(line)) for _, line in DOAP_COMMANDS), pattern


@pytest.mark.parametrize(("page", "line"), DOAP_COMMANDS, ids=[line[:40] for _, line in DOAP_COMMANDS])
def test_every_command_parses(page: str, line: str) -> None:
    assert page
    parse(shlex.split(re.sub(r"[\[\]…]", " ", strip_comment(line)))[1:])


def other_commands(program: str) -> Iterator[tuple[str, list[str]]]:
    """Yield page and words of the commands of another program."""
    for page, line in COMMANDS:
        words = shlex.split(strip_comment(line), posix=True) if line.count('"') % 2 == 0 else line.split()
        if words[0] == program:
            yield page, words[1:]


def test_every_script_and_its_options_exist() -> None:
    scripts = [(page, words) for page, words in other_commands("python") if words[0].endswith(".py")]
    assert len(scripts) > 10
    for page, words in scripts:
        source = (ROOT / words[0]).read_text(encoding="utf-8")
        for option in (word.strip("[]") for word in words[1:]):
            assert not option.startswith("--") or f'"{option}"' in source, f"{page}: {' '.join(words)}"


def test_every_target_of_make_exists() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    used = {words[0] for _, words in other_commands("make")}
    assert used
    assert used <= set(targets)


def test_every_extra_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    lists = re.findall(r"\[([\w,]+)\]", " ".join(word for _, words in other_commands("pip") for word in words))
    used = {extra for names in lists for extra in names.split(",")}
    assert used
    assert used <= set(extras)
