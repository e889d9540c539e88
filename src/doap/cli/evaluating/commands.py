"""`doap eval`: one command per benchmark."""

import typer

from doap.cli.lazy_commands import LazyCommand, LazyGroup
from doap.cli.options.removed import RenamingCommand

BENCHMARKS = ("phototour", "hpatches", "romepatches", "warped", "oxford", "pairs")
COMMANDS = {name: LazyCommand(f"doap.cli.evaluating.{name}", name, RenamingCommand) for name in BENCHMARKS}


class EvalCommands(LazyGroup):
    """The commands of `doap eval`."""

    lazy_commands = COMMANDS


app = typer.Typer(cls=EvalCommands, no_args_is_help=True, add_completion=False)


@app.callback()
def benchmarks() -> None:
    """Evaluate descriptors: all in one run, on the same patches or keypoints."""
