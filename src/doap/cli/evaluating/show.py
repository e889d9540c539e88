"""`doap show`: figures of how a model transforms patches."""

import typer

from doap.cli.lazy_commands import LazyCommand, LazyGroup

COMMANDS = {"alignment": LazyCommand("doap.cli.evaluating.alignment", "alignment")}


class ShowCommands(LazyGroup):
    """The commands of `doap show`."""

    lazy_commands = COMMANDS


app = typer.Typer(cls=ShowCommands, no_args_is_help=True, add_completion=False)


@app.callback()
def show() -> None:
    """Draw how a model transforms patches."""
