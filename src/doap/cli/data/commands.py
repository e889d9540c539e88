"""`doap data`: download, build, split and inspect sets."""

import typer

from doap.cli.lazy_commands import LazyCommand, LazyGroup
from doap.cli.options.removed import RenamingCommand

COMMANDS = {
    "list": LazyCommand("doap.cli.data.list", "list_sets"),
    "download": LazyCommand("doap.cli.data.download", "download"),
    "build": LazyCommand("doap.cli.data.build", "build", RenamingCommand),
    "mine": LazyCommand("doap.cli.data.mine", "mine"),
    "show": LazyCommand("doap.cli.data.show", "show"),
    "split": LazyCommand("doap.cli.data.split", "split", RenamingCommand),
    "tilt": LazyCommand("doap.cli.data.tilt", "tilt"),
    "select": LazyCommand("doap.cli.data.select", "select"),
    "pairs": LazyCommand("doap.cli.data.pairs", "pairs"),
    "hpatches": LazyCommand("doap.cli.data.hpatches", "hpatches"),
    "look-alike": LazyCommand("doap.cli.data.look_alike", "look_alike"),
    "info": LazyCommand("doap.cli.data.info", "info"),
}


class DataCommands(LazyGroup):
    """The commands of `doap data`."""

    lazy_commands = COMMANDS


app = typer.Typer(cls=DataCommands, no_args_is_help=True, add_completion=False)


@app.callback()
def data() -> None:
    """Download, build, split and inspect sets."""
