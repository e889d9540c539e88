"""Distances for HPatches, on a CPU or a GPU: many at once, and equal where descriptors are equal.

Only their order counts, so Euclidean distances stay squared. Vectors are compared in float64. Bits are ±1 in float32,
where |a - b|² is four times the Hamming distance, a whole number that sums exactly in any order.

A matrix product rounds by the place in the matrix: equal descriptors come out a little apart. The official code
takes differences, where they do not. So distances are held for equal when they differ by less than a tolerance: far
more than rounding makes of equal ones, and far less than float32 descriptors that differ are apart.
"""

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.types import Descriptors

PAIRS_AT_ONCE = 1 << 13  # what stays in the caches of a CPU
RELATIVE_TOLERANCE = 1e-12


def to_device(descriptors: Descriptors, device: str) -> Tensor:
    """(N, d) float32 or (N, bits / 8) uint8 as they are, on a device; without float64 there, on the CPU."""
    return torch.from_numpy(np.array(descriptors)).to("cpu" if device.startswith("mps") else device)


def to_vectors(codes: Tensor) -> Tensor:
    """(N, d) float32 to float64, or (N, bits / 8) uint8 to (N, bits) of ±1 in float32."""
    if codes.dtype != torch.uint8:
        return codes.double()
    places = torch.arange(7, -1, -1, dtype=torch.uint8, device=codes.device)
    bits = (codes[:, :, None] >> places) & 1
    return bits.flatten(1).float() * 2 - 1


def squared_distances(first: Tensor, second: Tensor) -> Tensor:
    """(N, K) |a - b|² = |a|² + |b|² - 2 a·b of all (N, d) vectors with all (K, d) others."""
    squares = first.square().sum(1)[:, None] + second.square().sum(1)
    return squares.addmm_(first, second.T, alpha=-2)


def tolerance(codes: Tensor) -> float:
    """By how much two squared distances of `to_vectors` of these codes may differ and still be equal."""
    if codes.dtype == torch.uint8:
        return 1.0  # of multiples of four
    longest = float(torch.linalg.vector_norm(codes, dim=1).max())
    return RELATIVE_TOLERANCE * (2 * longest) ** 2


def pair_distances(codes: Tensor, first: NDArray[np.int64], second: NDArray[np.int64]) -> Tensor:
    """(P,) squared distances of `to_vectors`, pair by pair; `first` and `second` are (P,) rows of the (N, …) codes."""
    compare = _compare_bits if codes.dtype == torch.uint8 else _compare_vectors
    parts = []
    for start in range(0, len(first), PAIRS_AT_ONCE):
        a, b = (
            codes[torch.from_numpy(rows[start : start + PAIRS_AT_ONCE]).to(codes.device)] for rows in (first, second)
        )
        parts.append(compare(a, b))
    return torch.cat(parts)


def tie_ranks(distances: Tensor, equal_within: float) -> NDArray[np.int64]:
    """(N,) whole numbers in the order of the (N,) distances, the same for distances that are equal."""
    ordered, order = distances.sort()
    rank = torch.zeros_like(order)
    rank[1:] = (ordered.diff() > equal_within).cumsum(0)
    ranks: NDArray[np.int64] = torch.empty_like(rank).scatter_(0, order, rank).cpu().numpy()
    return ranks


def _compare_vectors(first: Tensor, second: Tensor) -> Tensor:
    return (first.double() - second.double()).square_().sum(1)


def _compare_bits(first: Tensor, second: Tensor) -> Tensor:
    differing = torch.bitwise_xor(first, second).int()
    return 4 * _ones_in_bytes(first.device)[differing].sum(1)


@cache
def _ones_in_bytes(device: torch.device) -> Tensor:
    """(256,) how many bits of each byte are set."""
    return torch.tensor([number.bit_count() for number in range(256)], dtype=torch.uint8, device=device)
