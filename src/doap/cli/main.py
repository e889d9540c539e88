"""`doap`: the commands, and how errors are reported."""

import sys

import typer

from doap.cli import (
    convert,
    data,
    demo,
    describe,
    evaluate,
    match,
    models,
    recipes,
    report,
    reproduce,
    show,
    study,
    sweep,
    train,
)
from doap.cli.console import say_error
from doap.cli.removed_options import RenamingCommand
from doap.errors import DoapError
from doap.extras import missing_extra
from doap.version import __version__

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo", epilog=demo.EXAMPLE)(demo.demo)
app.command("match", epilog=match.EXAMPLE)(match.match)
app.command("describe", epilog=describe.EXAMPLE)(describe.describe)
app.command("train", cls=RenamingCommand, epilog=train.EXAMPLE)(train.train)
app.command("sweep", epilog=sweep.EXAMPLE)(sweep.sweep)
app.command("study", cls=RenamingCommand, epilog=study.EXAMPLE)(study.study)
app.command("recipes", epilog=recipes.EXAMPLE)(recipes.recipes)
app.command("models", epilog=models.EXAMPLE)(models.models)
app.command("convert", epilog=convert.EXAMPLE)(convert.convert)
app.command("report", epilog=report.EXAMPLE)(report.report)
app.command("reproduce", epilog=reproduce.EXAMPLE)(reproduce.reproduce)
app.add_typer(evaluate.app, name="eval")
app.add_typer(data.app, name="data")
app.add_typer(show.app, name="show")


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
    except OSError as error:  # a full disk, a folder without permission
        location = f"{error.filename}: " if error.filename else ""
        _exit_with(f"{location}{error.strerror}")


def _exit_with(line: str) -> None:
    say_error(line)
    sys.exit(1)
