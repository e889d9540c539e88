"""`doap`: the commands, and how errors are reported."""

import sys

import typer

from doap.cli.console import say_error
from doap.cli.lazy_commands import LazyGroup, Verb
from doap.cli.removed_options import RenamingCommand
from doap.errors import DoapError
from doap.extras import missing_extra
from doap.version import __version__

VERBS = {
    "demo": Verb("doap.cli.demo", "demo"),
    "app": Verb("doap.cli.app", "app"),
    "match": Verb("doap.cli.match", "match"),
    "describe": Verb("doap.cli.describe", "describe"),
    "colmap": Verb("doap.cli.colmap", "colmap"),
    "dbow": Verb("doap.cli.dbow", "dbow"),
    "train": Verb("doap.cli.train", "train", RenamingCommand),
    "train-frames": Verb("doap.cli.train_frames", "train_frames"),
    "sweep": Verb("doap.cli.sweep", "sweep"),
    "study": Verb("doap.cli.study", "study", RenamingCommand),
    "recipes": Verb("doap.cli.recipes", "recipes"),
    "models": Verb("doap.cli.models", "models"),
    "convert": Verb("doap.cli.convert", "convert"),
    "calibrate": Verb("doap.cli.calibrate", "calibrate"),
    "export": Verb("doap.cli.export", "export"),
    "hloc": Verb("doap.cli.hloc", "hloc"),
    "report": Verb("doap.cli.report", "report"),
    "reproduce": Verb("doap.cli.reproduce", "reproduce"),
    "eval": Verb("doap.cli.evaluate"),
    "data": Verb("doap.cli.data"),
    "show": Verb("doap.cli.show"),
}


class Commands(LazyGroup):
    """The commands of `doap`."""

    verbs = VERBS


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
