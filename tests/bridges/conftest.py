"""Exports by all bridges share one table of operators."""

from collections.abc import Iterator

import pytest

from support.onnx_operators import table_made_once


@pytest.fixture(autouse=True, scope="session")
def _table_made_once() -> Iterator[None]:
    with table_made_once():
        yield
