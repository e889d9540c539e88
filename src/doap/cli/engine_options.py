"""Options of the commands that use many processes and resume."""

from typing import Annotated

import typer

from doap.parallel.engine import EngineName

WorkersOption = Annotated[
    int | None, typer.Option(min=1, help="Number of processes; one per core by default. The result is the same.")
]
EngineOption = Annotated[
    EngineName,
    typer.Option(help="Processes of this machine, or of a Ray cluster (RAY_ADDRESS; without one, Ray runs here)."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace results of other settings in the output.")]
