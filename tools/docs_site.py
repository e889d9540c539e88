"""Hooks of MkDocs: links that leave docs/, and the page of all commands."""

import os
import re
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from doap.cli.main import app

ROOT = Path(__file__).parents[1]
COMMANDS_PAGE = "reference/commands.md"
# A link or image of Markdown with a relative target: its opening, target and anchor.
LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?(?=\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of all commands, from their docstrings and options."""
    files.append(File.generated(config, COMMANDS_PAGE, content=commands_page()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Point links that leave docs/, and links to folders, to the repository."""
    return redirect_links(markdown, page.file.src_uri, f"{config.extra['repository']}/blob/main")


def redirect_links(markdown: str, source: str, repository: str) -> str:
    """Return a page whose links out of docs/, and to folders, lead to the repository.

    Args:
        markdown: The page.
        source: Path of the page below docs/.
        repository: Address of the files of the repository.

    Example:
        >>> redirect_links("[x](../../examples) [y](b.md)", "bridges/a.md", "https://host/main")
        '[x](https://host/main/examples) [y](b.md)'
    """

    def redirect(match: re.Match[str]) -> str:
        opening, target, anchor = match.groups(default="")
        path = os.path.normpath(os.path.join("docs", os.path.dirname(source), target))  # noqa: PTH118, PTH120
        if Path(path).parts[0] == "docs" and not (ROOT / path).is_dir():
            return match.group()
        return f"{opening}{repository}/{Path(path).as_posix()}{anchor}"

    return LINK.sub(redirect, markdown)


def commands_page() -> str:
    """Return the page of all commands in Markdown."""
    lines = ["# Commands", "", "Every command, with `--help`. This page is made from the commands themselves.", ""]
    for words, command in list_commands(typer.main.get_command(app), ()):
        lines += command_section(" ".join(words), command)
    return "\n".join(lines)


def list_commands(group: Any, words: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    """Return every command below a group with its words, in the order of the help."""
    if not hasattr(group, "commands"):
        return [(words, group)]
    return [entry for name in group.commands for entry in list_commands(group.commands[name], (*words, name))]


def command_section(title: str, command: Any) -> list[str]:
    """Return the lines of one command: its help, its example, and a table of its parameters."""
    lines = [f"## doap {title}", "", " ".join((command.help or "").split()), ""]
    if command.epilog:
        lines += [f"`{command.epilog.removeprefix('Example: ').strip()}`", ""]
    lines += ["| parameter | meaning | default |", "|---|---|---|"]
    for parameter in command.params:
        options = [*parameter.opts, *parameter.secondary_opts]
        is_option = any(option.startswith("-") for option in options)
        label = (
            ", ".join(f"`{option}`" for option in options)
            if is_option
            else f"`{parameter.metavar or parameter.name.upper()}`"
        )
        meaning = " ".join((getattr(parameter, "help", None) or "").split()).replace("|", "\\|")
        default = parameter.default
        shown = "" if default is None or callable(default) or default in (False, "", ()) else f"`{default}`"
        lines.append(f"| {label} | {meaning} | {shown} |")
    return [*lines, ""]
