"""Distances of HPatches descriptors on a CPU or GPU, equal where descriptors are equal.

Only the order of distances matters, so Euclidean distances stay squared. Vectors are compared in float64. Bits are ±1
in float32, where |a - b|² is four times the Hamming distance, a whole number that sums exactly in any order.

A matrix product rounds differently at different positions, so that equal descriptors get slightly different distances;
the official code computes differences, which do not. Distances are therefore considered equal if they differ by less
than a tolerance: far more than the rounding error, and far less than the distance of different float32 descriptors.
"""

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.types import Descriptors

CHUNK_SIZE = 1 << 13  # pairs compared at once; fits the caches of a CPU
RELATIVE_TOLERANCE = 1e-12


def to_device(descriptors: Descriptors, device: str) -> Tensor:
    """Copy (N, d) float32 or (N, bits / 8) uint8 descriptors to a device; to the CPU if it has no float64."""
    return torch.from_numpy(np.array(descriptors)).to("cpu" if device.startswith("mps") else device)


def to_vectors(codes: Tensor) -> Tensor:
    """Convert (N, d) float32 to float64, or (N, bits / 8) uint8 to (N, bits) of ±1 in float32."""
    if codes.dtype != torch.uint8:
        return codes.double()
    shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=codes.device)
    bits = (codes[:, :, None] >> shifts) & 1
    return bits.flatten(1).float() * 2 - 1


def squared_distances(first: Tensor, second: Tensor) -> Tensor:
    """Return the (N, K) |a - b|² = |a|² + |b|² - 2 a·b of all (N, d) vectors with all (K, d) others."""
    squares = first.square().sum(1)[:, None] + second.square().sum(1)
    return squares.addmm_(first, second.T, alpha=-2)


def tolerance(codes: Tensor) -> float:
    """Return the difference up to which two squared distances of `to_vectors(codes)` are considered equal."""
    if codes.dtype == torch.uint8:
        return 1.0  # distances are multiples of four
    longest = float(torch.linalg.vector_norm(codes, dim=1, dtype=torch.float64).max())
    return RELATIVE_TOLERANCE * (2 * longest) ** 2


def pair_distances(codes: Tensor, first: NDArray[np.int64], second: NDArray[np.int64]) -> Tensor:
    """Return the (P,) squared distances of `to_vectors`, pair by pair.

    Args:
        codes: (N, …) descriptors.
        first: (P,) row of the first descriptor of each pair.
        second: (P,) row of the second.
    """
    compare = _compare_bits if codes.dtype == torch.uint8 else _compare_vectors
    chunks = []
    for start in range(0, len(first), CHUNK_SIZE):
        a, b = (codes[torch.from_numpy(rows[start : start + CHUNK_SIZE]).to(codes.device)] for rows in (first, second))
        chunks.append(compare(a, b))
    return torch.cat(chunks)


def tie_ranks(distances: Tensor, equal_within: float) -> NDArray[np.int64]:
    """Return (N,) integers in the order of the (N,) distances, the same for distances that are equal."""
    ordered, order = distances.sort()
    rank = torch.zeros_like(order)
    rank[1:] = (ordered.diff() > equal_within).cumsum(0)
    ranks: NDArray[np.int64] = torch.empty_like(rank).scatter_(0, order, rank).cpu().numpy()
    return ranks


def _compare_vectors(first: Tensor, second: Tensor) -> Tensor:
    return (first.double() - second.double()).square_().sum(1)


def _compare_bits(first: Tensor, second: Tensor) -> Tensor:
    differing = torch.bitwise_xor(first, second).int()
    return 4 * _bit_counts(first.device)[differing].sum(1)


@cache
def _bit_counts(device: torch.device) -> Tensor:
    """Return the (256,) number of set bits of each byte."""
    return torch.tensor([number.bit_count() for number in range(256)], dtype=torch.uint8, device=device)
