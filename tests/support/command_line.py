"""Type of the fixture that runs the command line."""

from collections.abc import Callable

Doap = Callable[..., tuple[int, str, str]]
"""Call as `doap("match", a, b)`; returns exit status, standard output and standard error."""
