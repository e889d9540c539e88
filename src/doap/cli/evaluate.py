"""`doap eval`: one command per benchmark."""

import typer

from doap.cli.lazy_commands import LazyGroup, Verb
from doap.cli.removed_options import RenamingCommand

BENCHMARKS = ("phototour", "hpatches", "romepatches", "warped", "oxford", "pairs")
VERBS = {name: Verb(f"doap.cli.eval_{name}", name, RenamingCommand) for name in BENCHMARKS}


class EvalCommands(LazyGroup):
    """The commands of `doap eval`."""

    verbs = VERBS


app = typer.Typer(cls=EvalCommands, no_args_is_help=True)


@app.callback()
def benchmarks() -> None:
    """Evaluate descriptors: all in one run, on the same patches or keypoints."""
