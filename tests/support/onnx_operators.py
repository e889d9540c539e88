"""Exports to ONNX in one process, without preparing the table of operators for each."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest


@contextmanager
def table_made_once() -> Iterator[None]:
    """Make torch's table of ONNX operators once for all exports in this block, which do not change it.

    Each export parses the source of all operators again, which takes longer than to export a small network.
    """
    registration: Any = pytest.importorskip("torch.onnx._internal.exporter._registration")
    make: Callable[..., Any] = registration.ONNXRegistry.from_torchlib
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registration.ONNXRegistry, "from_torchlib", staticmethod(cache(make)))
        yield
