"""Options that have no effect beside others: they are refused."""

from collections.abc import Iterable

import typer

from doap.errors import DoapError


def check_unused(context: typer.Context, names: Iterable[str], reason: str) -> None:
    """Raise a DoapError if an option is given that has no effect, for this reason."""
    options = {"json_file": "json", "figure": "figure/--no-figure"}
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = options.get(name, name.replace("_", "-"))
            raise DoapError(f"--{option}: has no effect on {reason}; leave it out")
