"""Errors of events: one escaped line, and no stack for the visitor."""

import inspect
from collections.abc import Iterator

import gradio as gr
import pytest

from doap.app.reporting import UNEXPECTED, reports_errors
from doap.errors import DoapError


@reports_errors
def fail(error: Exception) -> None:
    raise error


@reports_errors
def generate(error: Exception) -> Iterator[int]:
    yield 1
    raise error


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (DoapError("<b>a</b>.png: damaged\nremove it"), r"&lt;b&gt;a&lt;/b&gt;.png: damaged\x0aremove it"),
        (MemoryError(), "not enough memory; use smaller pictures or fewer keypoints"),
        (ZeroDivisionError("secret"), UNEXPECTED),
    ],
)
def test_every_error_becomes_one_line(error: Exception, line: str) -> None:
    for run in (lambda: fail(error), lambda: list(generate(error))):
        with pytest.raises(gr.Error) as caught:
            run()
        assert caught.value.message == line


def test_generators_stay_generators() -> None:
    assert inspect.isgeneratorfunction(generate)
    assert not inspect.isgeneratorfunction(fail)
    assert list(inspect.signature(generate).parameters) == ["error"]
