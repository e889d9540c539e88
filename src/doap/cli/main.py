"""`doap`: the verbs, and how failures are told."""

import sys

import typer

from doap.cli import data, demo, describe, evaluate, match, models, recipes, report, show, study, sweep, train
from doap.cli.console import complain
from doap.cli.eval_options import ManyValues
from doap.errors import DoapError
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
app.command("train", epilog=train.EXAMPLE)(train.train)
app.command("sweep", epilog=sweep.EXAMPLE)(sweep.sweep)
app.command("study", epilog=study.EXAMPLE)(study.study)
app.command("recipes", epilog=recipes.EXAMPLE)(recipes.recipes)
app.command("models", epilog=models.EXAMPLE)(models.models)
app.command("report", cls=ManyValues, epilog=report.EXAMPLE)(report.report)
app.add_typer(evaluate.app, name="eval")
app.add_typer(data.app, name="data")
app.add_typer(show.app, name="show")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"doap {__version__}")
        raise typer.Exit


@app.callback()
def doap_(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Local image descriptors trained by optimising Average Precision: train, describe, match, judge."""


def main() -> None:
    """Run the command line; a error the user can cause is one line on standard error and exit status 1."""
    try:
        app()
    except DoapError as error:
        complain(str(error))
        sys.exit(1)
    except OSError as error:  # a full disk, a folder without permission
        place = f"{error.filename}: " if error.filename else ""
        complain(f"{place}{error.strerror}")
        sys.exit(1)
