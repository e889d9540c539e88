"""Row-wise operations of the objective, one Triton kernel each, for NVIDIA GPUs.

On a GPU these kernels take less time than their launches, so one launch replaces the several PyTorch operations of
`average_precision`. L2 normalisation F = F₀ / ‖F₀‖ with its gradient (paper, appendix A, last formula):

    ∂L/∂F₀ = (∂L/∂F - F (Fᵀ ∂L/∂F)) / ‖F₀‖

Relaxed AP (paper, section 3.2) with its gradient, where P_k = u_k / v_k, u_k = 2 H⁺_k - h⁺_k + 1 and
v_k = 2 H_k - h_k + 1:

    N⁺ AP        = Σ_k h⁺_k P_k
    N⁺ ∂AP/∂h⁺_j = P_j + 2 Σ_{k≥j} h⁺_k / v_k - h⁺_j / v_j
    N⁺ ∂AP/∂h_j  = -2 Σ_{k≥j} h⁺_k u_k / v_k² + h⁺_j u_j / v_j²
"""

# Triton compiles these functions as its own language, whose arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable


@triton.jit
def _load_row(base, columns, dimensions):
    """Load this program's row of a matrix as float32, 0 outside."""
    return tl.load(base + tl.program_id(0).to(tl.int64) * dimensions + columns, columns < dimensions, 0.0).to(
        tl.float32
    )


@triton.jit
def _store_row(base, columns, dimensions, values):
    pointers = base + tl.program_id(0).to(tl.int64) * dimensions + columns
    tl.store(pointers, values, mask=columns < dimensions)


@triton.jit
def _normalise_kernel(outputs, unit, norms, dimensions, WIDTH: tl.constexpr):
    """Compute F = F₀ / ‖F₀‖ and ‖F₀‖."""
    columns = tl.arange(0, WIDTH)
    values = _load_row(outputs, columns, dimensions)
    norm = tl.sqrt(tl.sum(values * values))
    _store_row(unit, columns, dimensions, tl.where(norm == 0, 0.0, values / norm))
    tl.store(norms + tl.program_id(0), norm)


@triton.jit
def _normalise_backward_kernel(unit, norms, grad_unit, grad_outputs, dimensions, WIDTH: tl.constexpr):
    """Compute ∂L/∂F₀ = (∂L/∂F - F (Fᵀ ∂L/∂F)) / ‖F₀‖."""
    columns = tl.arange(0, WIDTH)
    direction = _load_row(unit, columns, dimensions)
    gradient = _load_row(grad_unit, columns, dimensions)
    norm = tl.load(norms + tl.program_id(0))
    tangential = gradient - direction * tl.sum(direction * gradient)
    _store_row(grad_outputs, columns, dimensions, tl.where(norm == 0, 0.0, tangential / norm))


@triton.jit
def _precision_kernel(matches, ranked, precision, grad_matches, grad_ranked, dimensions, WIDTH: tl.constexpr):
    """Compute AP and its gradient with respect to both histograms."""
    k = tl.arange(0, WIDTH)
    h_match = _load_row(matches, k, dimensions)
    h = _load_row(ranked, k, dimensions)
    u = 2 * tl.cumsum(h_match) - h_match + 1
    v = 2 * tl.cumsum(h) - h + 1
    match_count = tl.maximum(tl.sum(h_match), 1.0)
    h_over_v = h_match / v
    hu_over_v2 = h_over_v * u / v
    tl.store(precision + tl.program_id(0), tl.sum(h_over_v * u) / match_count)
    _store_row(grad_matches, k, dimensions, (u / v + 2 * tl.cumsum(h_over_v, reverse=True) - h_over_v) / match_count)
    _store_row(grad_ranked, k, dimensions, (hu_over_v2 - 2 * tl.cumsum(hu_over_v2, reverse=True)) / match_count)


def _padded_width(dimensions: int) -> int:
    """Return the next power of two."""
    return 1 << (dimensions - 1).bit_length()


class NormaliseRows(torch.autograd.Function):
    """L2 normalisation of (M, d) outputs to float32 unit vectors; a row of zeros stays 0, with gradient 0."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor) -> Tensor:
        """Divide each row by its length."""
        outputs = outputs.contiguous()
        unit = torch.empty_like(outputs, dtype=torch.float32)
        norms = unit.new_empty(len(unit))
        _normalise_kernel[len(unit),](outputs, unit, norms, unit.shape[1], WIDTH=_padded_width(unit.shape[1]))
        ctx.save_for_backward(unit, norms)
        ctx.dtype = outputs.dtype
        return unit

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_unit: Tensor) -> Tensor:
        """Compute the gradient of the outputs."""
        unit, norms = ctx.saved_tensors
        grad_outputs = torch.empty_like(unit, dtype=ctx.dtype)
        dimensions = unit.shape[1]
        _normalise_backward_kernel[len(unit),](
            unit, norms, grad_unit.contiguous(), grad_outputs, dimensions, WIDTH=_padded_width(dimensions)
        )
        return grad_outputs


class RelaxedAveragePrecision(torch.autograd.Function):
    """AP of each row of h⁺ and h, each (N, b + 1); forward computes the gradient too."""

    @staticmethod
    def forward(ctx: Any, matches: Tensor, ranked: Tensor) -> Tensor:
        """Compute AP, (N,)."""
        matches, ranked = matches.contiguous(), ranked.contiguous()
        precision = matches.new_empty(len(matches))
        grad_matches, grad_ranked = torch.empty_like(matches), torch.empty_like(ranked)
        columns = matches.shape[1]
        _precision_kernel[len(matches),](
            matches, ranked, precision, grad_matches, grad_ranked, columns, WIDTH=_padded_width(columns)
        )  # fmt: skip
        ctx.save_for_backward(grad_matches, grad_ranked)
        return precision

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_precision: Tensor) -> tuple[Tensor, Tensor]:
        """Scale the gradient computed in forward."""
        grad_matches, grad_ranked = ctx.saved_tensors
        return grad_matches * grad_precision[:, None], grad_ranked * grad_precision[:, None]
