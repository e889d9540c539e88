"""The exception for errors that a user can cause, checks of arguments, and counts in messages."""

import operator
import os
from collections.abc import Iterable

MAX_LINE = 2000  # characters; some paths have half as many


class DoapError(Exception):
    """An error in the user's input: one line that says what is wrong, where, and what to do.

    The command line prints the line without a stack trace. Tensors of a wrong shape or type raise ValueError, as in
    torch; any other exception is a bug in doap. Line breaks are escaped, and the middle of a line that quotes very long
    content of a file is left out.
    """

    def __str__(self) -> str:
        line = super().__str__().replace("\n", r"\x0a")
        return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE // 2]} … {line[-MAX_LINE // 4 :]}"


def check_number(name: str, value: object) -> None:
    """Check that an argument is a number, of Python or of an array library.

    Raises:
        DoapError: If it is not.
    """
    try:
        if isinstance(value, str | bytes):  # which float reads
            raise TypeError
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):  # the last by tensors of several values
        raise DoapError(f"{name} must be a number, not {_shown(value)}") from None


def check_whole_number(name: str, value: object) -> None:
    """Check that an argument is a whole number, of Python or of an array library.

    Raises:
        DoapError: If it is not.
    """
    try:
        operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise DoapError(f"{name} must be a whole number, not {_shown(value)}") from None


def to_floats(name: str, values: Iterable[float]) -> tuple[float, ...]:
    """Return numbers, of Python or of an array library, as floats of Python.

    Raises:
        DoapError: If one is no number, or there are none to iterate over.
    """
    try:
        numbers = tuple(values)
    except TypeError:
        raise DoapError(f"{name} must be numbers, not {_shown(values)}") from None
    for number in numbers:
        check_number(f"each of {name}", number)
    return tuple(map(float, numbers))


def check_choice(name: str, value: object, choices: Iterable[str], alternative: str = "") -> None:
    """Check that an argument is one of the names of a fixed list.

    Args:
        name: Name of the argument.
        value: Its value.
        choices: The names.
        alternative: What the argument may be as well, for the message.

    Raises:
        DoapError: If it is none of them.
    """
    known = tuple(choices)
    if not (isinstance(value, str) and value in known):
        shown = value if value is None or isinstance(value, str) else _shown(value)
        also = f", or {alternative}" if alternative else ""
        raise DoapError(f"{name} {shown}: unknown; choose one of {', '.join(known)}{also}")


def check_path(name: str, value: object) -> None:
    """Check that an argument is a path or a name.

    Raises:
        DoapError: If it is not.
    """
    if not isinstance(value, str | os.PathLike):
        raise DoapError(f"{name} must be a path or a name, not {_shown(value)}")


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, str | bytes | int | float) else type(value).__name__


def inflect(count: int, singular: str, plural: str = "") -> str:
    """Return a noun or a verb in the form for a count: the plural, by default with an s, unless there is one.

    Example:
        >>> [f"{count} {inflect(count, 'photo')}" for count in (0, 1, 2)]
        ['0 photos', '1 photo', '2 photos']
        >>> inflect(1, "has", "have")
        'has'
    """
    return singular if count == 1 else plural or f"{singular}s"
