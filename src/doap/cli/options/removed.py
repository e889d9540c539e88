"""Options of version 0.1 that have another name, and the command class that refuses them."""

from typing import Any

from typer.core import TyperCommand

from doap.errors import DoapError

REMOVED = {
    "--models": "give the models as arguments, doap eval {command} doap-128 sift --data …",
    "--fresh": "use --no-cache",
    "--pictures": "use --drawings",
    "--validate": "use --val",
    "--share": "use --val-fraction",
    "--fixed": "use --static",
    "--no-fixed": "use --no-static",
}
"""Removed options and their replacements."""


class RenamingCommand(TyperCommand):
    """Command that names the replacement of a removed option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse removed options, then parse as usual."""
        for argument in args:
            option = argument.partition("=")[0]
            if option in REMOVED:
                raise DoapError(f"{option} was removed: {REMOVED[option].format(command=ctx.info_name)}")
        return super().parse_args(ctx, args)
