"""`doap`: the commands, and how errors are reported."""

import sys

import typer

from doap.cli.console import say_error
from doap.cli.lazy_commands import LazyCommand, LazyGroup
from doap.cli.options.removed import RenamingCommand
from doap.errors import DoapError
from doap.extras import missing_extra
from doap.version import __version__

COMMANDS = {
    "demo": LazyCommand("doap.cli.using.demo", "demo"),
    "app": LazyCommand("doap.cli.using.app", "app"),
    "match": LazyCommand("doap.cli.using.match", "match"),
    "describe": LazyCommand("doap.cli.using.describe", "describe"),
    "colmap": LazyCommand("doap.cli.using.colmap", "colmap"),
    "dbow": LazyCommand("doap.cli.using.dbow", "dbow"),
    "train": LazyCommand("doap.cli.learning.train", "train", RenamingCommand),
    "train-frames": LazyCommand("doap.cli.learning.train_frames", "train_frames"),
    "sweep": LazyCommand("doap.cli.learning.sweep", "sweep"),
    "study": LazyCommand("doap.cli.learning.study", "study", RenamingCommand),
    "recipes": LazyCommand("doap.cli.learning.recipes", "recipes"),
    "models": LazyCommand("doap.cli.models.table", "models"),
    "convert": LazyCommand("doap.cli.models.convert", "convert"),
    "calibrate": LazyCommand("doap.cli.models.calibrate", "calibrate"),
    "export": LazyCommand("doap.cli.models.export", "export"),
    "hloc": LazyCommand("doap.cli.using.hloc", "hloc"),
    "report": LazyCommand("doap.cli.evaluating.report", "report"),
    "reproduce": LazyCommand("doap.cli.learning.reproduce", "reproduce"),
    "eval": LazyCommand("doap.cli.evaluating.commands"),
    "data": LazyCommand("doap.cli.data.commands"),
    "show": LazyCommand("doap.cli.evaluating.show"),
}


class Commands(LazyGroup):
    """The commands of `doap`."""

    lazy_commands = COMMANDS


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"doap {__version__}")
        raise typer.Exit


@app.callback()
def doap(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Local image descriptors trained by optimising Average Precision: train, describe, match, evaluate."""


def main() -> None:
    """Run the command line.

    An error that the user can cause is one line on standard error and exit status 1; a missing optional dependency
    likewise, with the command that installs it.
    """
    try:
        app()
    except DoapError as error:
        _exit_with(str(error))
    except ModuleNotFoundError as error:
        line = missing_extra(error)
        if line is None:
            raise
        _exit_with(line)
    except MemoryError:
        _exit_with("not enough memory; close other programs, or use fewer --workers or smaller inputs")
    except OSError as error:  # a full disk, a folder without permission
        location = f"{error.filename}: " if error.filename else ""
        _exit_with(f"{location}{error.strerror or error}")


def _exit_with(line: str) -> None:
    say_error(line)
    sys.exit(1)
