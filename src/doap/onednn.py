"""Torch's use of oneDNN, the library of its fast CPU kernels.

If a CPU has no kernel for a matrix product in bfloat16 or float16, torch computes it otherwise, and disables oneDNN for
the rest of the process: everything after it is slower, and differs by rounding. Products are therefore tried first.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from warnings import catch_warnings, simplefilter

import torch


@cache
def multiplies(dtype: torch.dtype) -> bool:
    """Return whether torch multiplies CPU matrices of a dtype without disabling oneDNN."""
    if not is_enabled():  # by the caller: nothing can be disabled
        return True
    rows = torch.ones(32, 32, dtype=dtype)
    with keep_enabled(), catch_warnings(), torch.no_grad():
        simplefilter("ignore", UserWarning)  # torch's, that it disables oneDNN
        torch.nn.functional.linear(rows, rows, rows[0])
        torch.mm(rows, rows)
        return is_enabled()


@contextmanager
def keep_enabled() -> Iterator[None]:
    """Leave oneDNN enabled after a block if it was before."""
    before = is_enabled()
    try:
        yield
    finally:
        if before and not is_enabled():
            torch.backends.mkldnn.set_flags(True)  # type: ignore[no-untyped-call]


def is_enabled() -> bool:
    """Return whether torch uses oneDNN in this process."""
    return bool(torch.backends.mkldnn.enabled)
