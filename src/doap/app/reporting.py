"""How errors reach the visitor: one line, and the page lives on."""

import functools
import html
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import gradio as gr

from doap.errors import DoapError

Function = TypeVar("Function", bound=Callable[..., Any])

MEMORY = "not enough memory; use smaller pictures or fewer keypoints"
UNEXPECTED = "an unexpected error; the terminal of doap app shows its details"

log = logging.getLogger(__name__)


def reports_errors(function: Function) -> Function:
    """Show errors of an event as one line on the page; wraps functions and generators.

    A `DoapError` and a lack of memory are shown as they are. Any other exception is a bug: it is logged with its
    stack, and the page shows that it happened.
    """
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generate(*arguments: Any, **options: Any) -> Iterator[Any]:
            with _one_line():
                yield from function(*arguments, **options)

        return generate  # type: ignore[return-value]

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        with _one_line():
            return function(*arguments, **options)

    return call  # type: ignore[return-value]


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except gr.Error:
        raise
    except Exception as error:
        line = error_line(error)
        if line == UNEXPECTED:
            log.exception("an event of the page failed")
        raise _shown(line) from error


def error_line(error: Exception) -> str:
    """Return what the visitor reads about an error."""
    if isinstance(error, DoapError):
        return str(error)
    return MEMORY if isinstance(error, MemoryError) else UNEXPECTED


def _shown(line: str) -> gr.Error:
    """Return an error for the page, which takes HTML."""
    return gr.Error(html.escape(line), print_exception=False)
