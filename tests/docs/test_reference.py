"""The reference has every public name, and the page of commands every command and option."""

import re

import typer

import doap
from doap.cli.main import app
from docs_site import commands_page, list_commands
from support.pages import DOCS

DIRECTIVES = re.findall(r"^::: (\S+)$", "".join(p.read_text() for p in (DOCS / "reference").glob("*.md")), re.MULTILINE)


def test_every_public_name_is_in_the_reference() -> None:
    documented = {name.rpartition(".")[2] for name in DIRECTIVES}
    assert set(doap.__all__) - {"__version__"} <= documented
    assert len(DIRECTIVES) == len(set(DIRECTIVES))


def test_every_command_and_option_is_on_the_page_of_commands() -> None:
    page = commands_page()
    sections = dict(re.findall(r"^## doap (.*)\n((?:(?!## ).*\n?)*)", page, re.MULTILINE))
    commands = list_commands(typer.main.get_command(app), ())
    assert list(sections) == [" ".join(words) for words, _ in commands]
    assert len(commands) > 30
    for words, command in commands:
        for parameter in command.params:
            for option in parameter.opts:
                assert not option.startswith("-") or f"`{option}`" in sections[" ".join(words)], (words, option)
