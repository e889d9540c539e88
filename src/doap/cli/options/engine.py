"""Options of the commands that use many processes and resume."""

from typing import Annotated

import typer

from doap.parallel.engine import EngineName

WorkersOption = Annotated[
    int | None, typer.Option(min=1, help="Number of processes; one per core by default. The result is the same.")
]
EngineOption = Annotated[
    EngineName,
    typer.Option(
        help="local: processes on this machine; ray: the Ray cluster at RAY_ADDRESS, or Ray on this machine if it is "
        "not set."
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace results of other settings in the output.")]
