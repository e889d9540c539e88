"""Tests of torch's use of oneDNN: nothing in the package disables it for the rest of the process."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import doap
from doap import onednn
from doap.matching import maxima
from doap.matching.nearest import search_matches
from doap.networks.inference import optimize_for_inference


@pytest.fixture
def _lost_product(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A CPU on which products of bfloat16 disable oneDNN, as torch does on an ARM without bfloat16."""
    multiply, apply = torch.mm, torch.nn.functional.linear

    def disable(rows: torch.Tensor) -> None:
        if rows.dtype == torch.bfloat16:
            torch.backends.mkldnn.set_flags(False)  # type: ignore[no-untyped-call]

    def mm(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        disable(a)
        return multiply(a, b, out=out)

    def linear(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        disable(a)
        return apply(a, b, bias)

    monkeypatch.setattr(torch, "mm", mm)
    monkeypatch.setattr(torch.nn.functional, "linear", linear)
    onednn.multiplies.cache_clear()
    maxima._fastest_bit_dtype.cache_clear()
    yield
    onednn.multiplies.cache_clear()
    maxima._fastest_bit_dtype.cache_clear()


@pytest.mark.usefixtures("_lost_product")
def test_products_that_disable_it_are_recognised() -> None:
    assert not onednn.multiplies(torch.bfloat16)
    assert onednn.multiplies(torch.float32)
    assert onednn.is_enabled()


@pytest.mark.usefixtures("_lost_product")
def test_matching_bits_does_not_disable_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maxima, "TRIAL_ENTRIES", 0)
    bits = np.random.default_rng(0).integers(0, 256, (300, 32), dtype=np.uint8)
    assert len(search_matches(bits, bits, True).indices) == 300
    assert onednn.is_enabled()


@pytest.mark.usefixtures("_lost_product")
def test_a_model_in_bfloat16_does_not_disable_it() -> None:
    model = optimize_for_inference(doap.load("doap-tiny-128", fast=False), torch.bfloat16)
    assert model(torch.rand(4, 32, 32)).shape == (4, 128)
    assert onednn.is_enabled()


def test_a_block_may_disable_it_for_itself() -> None:
    with onednn.keep_enabled():
        torch.backends.mkldnn.set_flags(False)  # type: ignore[no-untyped-call]
    assert onednn.is_enabled()
