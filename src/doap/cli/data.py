"""`doap data`: download, build, split and inspect sets."""

import typer

from doap.cli.lazy_commands import LazyGroup, Verb
from doap.cli.removed_options import RenamingCommand

VERBS = {
    "list": Verb("doap.cli.data_list", "list_sets"),
    "download": Verb("doap.cli.data_download", "download"),
    "build": Verb("doap.cli.data_build", "build", RenamingCommand),
    "mine": Verb("doap.cli.data_mine", "mine"),
    "show": Verb("doap.cli.data_show", "show"),
    "split": Verb("doap.cli.data_split", "split", RenamingCommand),
    "tilt": Verb("doap.cli.data_tilt", "tilt"),
    "select": Verb("doap.cli.data_select", "select"),
    "pairs": Verb("doap.cli.data_pairs", "pairs"),
    "hpatches": Verb("doap.cli.data_hpatches", "hpatches"),
    "look-alike": Verb("doap.cli.data_look_alike", "look_alike"),
    "info": Verb("doap.cli.data_info", "info"),
}


class DataCommands(LazyGroup):
    """The commands of `doap data`."""

    verbs = VERBS


app = typer.Typer(cls=DataCommands, no_args_is_help=True)


@app.callback()
def data() -> None:
    """Download, build, split and inspect sets."""
