"""Commands that are imported on first use, so that running one does not import the others."""

import inspect
from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from doap.errors import DoapError

STANDARD_STREAM = Path("-")  # as other programs call it


@dataclass(frozen=True)
class LazyCommand:
    """Where a command is defined.

    Attributes:
        module: Module of the command: it has the function and `EXAMPLE`, the last line of its help. The module of a
            group of commands has the Typer application `app`.
        function: Name of the function; empty for a group of commands.
        cls: Class that parses the arguments.
    """

    module: str
    function: str = ""
    cls: type[TyperCommand] = TyperCommand

    def load(self, name: str) -> Any:
        """Import the module and return the click command."""
        module = import_module(self.module)
        if self.function:
            app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
            function = getattr(module, self.function)
            checked = _refuse_streams(function)
            app.command(name, cls=self.cls, help=_paragraphs(function), epilog=module.EXAMPLE)(checked)
        else:
            app = module.app
        command = typer.main.get_command(app)
        command.name = name
        return command


def _refuse_streams(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command that refuses the path `-`: it would be a file of this name."""

    @wraps(function)
    def command(**values: Any) -> None:
        for value in values.values():
            if STANDARD_STREAM in (value if isinstance(value, list) else [value]):
                raise DoapError("-: standard input and output are not supported; name a file or folder")
        function(**values)

    return command


def _paragraphs(function: Callable[..., None]) -> str:
    """Return the docstring with one line per paragraph, which the help wraps; it keeps line breaks."""
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


class LazyGroup(TyperGroup):
    """Group of commands that are imported on first use; only the help of the group imports all of them.

    Attributes:
        lazy_commands: Commands by name, in the order of the help; given by each subclass.
    """

    lazy_commands: ClassVar[Mapping[str, LazyCommand]]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _LazyCommands(self.lazy_commands)


class _LazyCommands(UserDict[str, Any]):
    """Click commands by name, each loaded on first access."""

    def __getitem__(self, name: str) -> Any:
        if isinstance(self.data[name], LazyCommand):
            self.data[name] = self.data[name].load(name)
        return self.data[name]
