"""What the objective does to one row at a time, each a single Triton kernel: for a GPU, whose kernels take less
time than their launches. The same formulas, in as many operations of PyTorch, stand in `average_precision`.
"""

# Triton reads these functions as its own language, in which arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable


@triton.jit
def _row(base, columns, dimensions):
    """This program's row of a matrix as float32, 0 outside."""
    return tl.load(base + tl.program_id(0).to(tl.int64) * dimensions + columns, columns < dimensions, 0.0).to(
        tl.float32
    )


@triton.jit
def _store_row(base, columns, dimensions, values):
    place = base + tl.program_id(0).to(tl.int64) * dimensions + columns
    tl.store(place, values, mask=columns < dimensions)


@triton.jit
def _unit_kernel(outputs, unit, norms, dimensions, WIDTH: tl.constexpr):
    columns = tl.arange(0, WIDTH)
    values = _row(outputs, columns, dimensions)
    norm = tl.sqrt(tl.sum(values * values))
    _store_row(unit, columns, dimensions, tl.where(norm == 0, 0.0, values / norm))
    tl.store(norms + tl.program_id(0), norm)


@triton.jit
def _unit_backward_kernel(unit, norms, by_unit, by_outputs, dimensions, WIDTH: tl.constexpr):
    """∂L/∂F₀ = (∂L/∂F - F (Fᵀ ∂L/∂F)) / ‖F₀‖, the last formula of the paper's appendix A."""
    columns = tl.arange(0, WIDTH)
    direction, gradient = _row(unit, columns, dimensions), _row(by_unit, columns, dimensions)
    norm = tl.load(norms + tl.program_id(0))
    across = gradient - direction * tl.sum(direction * gradient)
    _store_row(by_outputs, columns, dimensions, tl.where(norm == 0, 0.0, across / norm))


@triton.jit
def _precision_kernel(matches, ranked, precision, by_matches, by_ranked, dimensions, WIDTH: tl.constexpr):
    """AP and its gradient. With P_k = u_k / v_k, u_k = 2 H⁺_k - h⁺_k + 1 and v_k = 2 H_k - h_k + 1:

    N⁺ AP        = Σ_k h⁺_k P_k
    N⁺ ∂AP/∂h⁺_j = P_j + 2 Σ_{k≥j} h⁺_k / v_k - h⁺_j / v_j
    N⁺ ∂AP/∂h_j  = -2 Σ_{k≥j} h⁺_k u_k / v_k² + h⁺_j u_j / v_j²
    """
    k = tl.arange(0, WIDTH)
    found, all_items = _row(matches, k, dimensions), _row(ranked, k, dimensions)
    above = 2 * tl.cumsum(found) - found + 1
    below = 2 * tl.cumsum(all_items) - all_items + 1
    number = tl.maximum(tl.sum(found), 1.0)
    share = found / below
    pull = share * above / below
    tl.store(precision + tl.program_id(0), tl.sum(share * above) / number)
    _store_row(by_matches, k, dimensions, (above / below + 2 * tl.cumsum(share, reverse=True) - share) / number)
    _store_row(by_ranked, k, dimensions, (pull - 2 * tl.cumsum(pull, reverse=True)) / number)


def _width(dimensions: int) -> int:
    return 1 << (dimensions - 1).bit_length()


class Unit(torch.autograd.Function):
    """(M, d) outputs to float32 unit vectors; an output of zeros stays 0, with gradient 0."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor) -> Tensor:
        """Divide each row by its length."""
        outputs = outputs.contiguous()
        unit = torch.empty_like(outputs, dtype=torch.float32)
        norms = unit.new_empty(len(unit))
        _unit_kernel[len(unit),](outputs, unit, norms, unit.shape[1], WIDTH=_width(unit.shape[1]))
        ctx.save_for_backward(unit, norms)
        ctx.dtype = outputs.dtype
        return unit

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_unit: Tensor) -> Tensor:
        """Carry the gradient through the division."""
        unit, norms = ctx.saved_tensors
        by_outputs = torch.empty_like(unit, dtype=ctx.dtype)
        width = _width(unit.shape[1])
        _unit_backward_kernel[len(unit),](unit, norms, by_unit.contiguous(), by_outputs, unit.shape[1], WIDTH=width)
        return by_outputs


class Precision(torch.autograd.Function):
    """h⁺ and h, each (N, b + 1), to the AP of each row; its gradient is made along with it."""

    @staticmethod
    def forward(ctx: Any, matches: Tensor, ranked: Tensor) -> Tensor:
        """Compute AP, (N,)."""
        matches, ranked = matches.contiguous(), ranked.contiguous()
        precision = matches.new_empty(len(matches))
        by_matches, by_ranked = torch.empty_like(matches), torch.empty_like(ranked)
        bins = matches.shape[1]
        _precision_kernel[len(matches),](
            matches, ranked, precision, by_matches, by_ranked, bins, WIDTH=_width(bins)
        )  # fmt: skip
        ctx.save_for_backward(by_matches, by_ranked)
        return precision

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_precision: Tensor) -> tuple[Tensor, Tensor]:
        """Scale the gradient made in forward."""
        by_matches, by_ranked = ctx.saved_tensors
        return by_matches * by_precision[:, None], by_ranked * by_precision[:, None]
