import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from onnxruntime import InferenceSession, SessionOptions

from doap.networks.int8 import operands

CPUINFO = Path("/proc/cpuinfo")


@pytest.fixture(autouse=True)
def _choose_again() -> Iterator[None]:
    """Choose for this CPU before and after each test: later tests of the process must not have a pretended one's."""
    operands.choose_operands.cache_clear()
    yield
    operands.choose_operands.cache_clear()


@pytest.mark.skipif(platform.machine() != "x86_64" or not CPUINFO.exists(), reason="needs the flags of an x86 CPU")
def test_unsigned_times_signed_is_exact_where_the_cpu_has_vnni() -> None:
    has_vnni = re.search(r"\b(avx512_vnni|avx_vnni|amx_int8)\b", CPUINFO.read_text()) is not None
    assert operands.sums_are_exact("u8s8") == has_vnni


def test_unsigned_sums_are_exact_everywhere() -> None:
    assert operands.sums_are_exact("u8u8")


def test_what_is_chosen_is_exact() -> None:
    assert operands.sums_are_exact(operands.choose_operands())


@pytest.mark.parametrize(
    ("machine", "exact", "chosen"),
    [("x86_64", True, "u8s8"), ("AMD64", False, "u8u8"), ("aarch64", True, "s8s8"), ("arm64", False, "s8s8")],
)
def test_the_fastest_exact_types_are_chosen(
    machine: str, exact: bool, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(operands, "sums_are_exact", lambda _: exact)
    assert operands.choose_operands() == chosen


def test_the_sums_start_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def open_session(model: bytes, options: SessionOptions | None = None, **others: Any) -> InferenceSession:
        threads.append(options and options.intra_op_num_threads)
        return InferenceSession(model, options, **others)

    monkeypatch.setattr(operands, "InferenceSession", open_session)
    assert operands.sums_are_exact("u8u8")
    assert threads == [1]
