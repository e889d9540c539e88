"""The listwise objective: Average Precision, relaxed so that it has a gradient (paper, section 3.2).

Every patch of a batch is a query that ranks all the others. Distances are quantised into bins
k = 0..b with centres z_k = k w by the triangular kernel δ(d, k) = max(0, 1 - |d - z_k| / w):

    h⁺_k = Σ_{x ∈ S⁺} δ(D(q, x), k)      soft count of the query's matches at distance z_k
    h_k  = Σ_{x ≠ q}  δ(D(q, x), k)      soft count of all patches at distance z_k
    H_k  = h_0 + … + h_k                 (and H⁺_k likewise)

    AP(q) = 1/|S⁺| Σ_k h⁺_k (H⁺_{k-1} + H⁺_k + 1) / (H_{k-1} + H_k + 1)

The distance is Euclidean between unit vectors, in [0, 2], for real-valued descriptors, and the
Hamming distance of tanh-relaxed bits, in [0, bits], for binary ones.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Kind = Literal["real", "binary"]


def euclidean_distances(descriptors: Tensor) -> Tensor:
    """D(x, x') = √(2 - 2 F(x)ᵀF(x')) between unit vectors.

    Args:
        descriptors: (M, d), each row of length 1.

    Returns:
        (M, M), in [0, 2]. Equal descriptors are at distance 0 with gradient 0, where the root's
        own slope would be infinite.
    """
    squared = (2 - 2 * descriptors @ descriptors.T).clamp(max=4)
    apart = squared > torch.finfo(squared.dtype).eps
    return torch.where(apart, squared, 1).sqrt() * apart


def hamming_distances(descriptors: Tensor) -> Tensor:
    """D(x, x') = (b - F(x)ᵀF(x')) / 2 for (M, b) descriptors in [-1, 1]; returns (M, M) in [0, b]."""
    bits = descriptors.shape[1]
    return ((bits - descriptors @ descriptors.T) / 2).clamp(0, bits)


def soft_histogram(distances: Tensor, weights: Tensor, bins: int, width: float) -> Tensor:
    """Histogram of each row by the triangular kernel, h_k = Σ_x weight_x δ(D(q, x), k).

    The kernel is as wide as the bins are apart, so each distance touches exactly two bins: the one
    below it and the one above, with weights that sum to 1. Hence two scatter-adds, whatever `bins`.

    Args:
        distances: (M, N), in [0, bins * width].
        weights: (M, N), what each distance counts; 0 leaves it out.

    Returns:
        (M, bins + 1).
    """
    position = distances / width
    below = position.detach().floor().long().clamp(0, bins - 1)
    above_share = position - below
    histogram = distances.new_zeros(len(distances), bins + 1)
    histogram = histogram.scatter_add(1, below, weights * (1 - above_share))
    return histogram.scatter_add(1, below + 1, weights * above_share)


def relaxed_average_precision(matches: Tensor, all_items: Tensor) -> Tensor:
    """AP of each query from its two histograms, both (M, b + 1): h⁺ of its matches, h of the whole list.

    A query without a match gets 0.
    """
    cumulative_matches, cumulative_all = matches.cumsum(1), all_items.cumsum(1)
    # H_{k-1} + H_k = 2 H_k - h_k
    precision = (2 * cumulative_matches - matches + 1) / (2 * cumulative_all - all_items + 1)
    return (matches * precision).sum(1) / cumulative_matches[:, -1].clamp(min=1)


class AveragePrecisionLoss(nn.Module):
    """1 - mean relaxed AP, every patch of the batch a query, the other patches of its group its matches.

    Args:
        kind: "real" (L2-normalised, Euclidean) or "binary" (tanh, Hamming).
        bins: b, the number of bin intervals. By default 25 for real-valued descriptors, and the number
            of bits, one bin an integer distance, for binary ones: the paper's choices.

    Example:
        >>> import torch
        >>> loss = AveragePrecisionLoss("real")
        >>> outputs = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]], requires_grad=True)
        >>> float(loss(outputs, torch.tensor([0, 0, 1, 1])))  # every match ranks first
        0.0
        >>> float(loss(outputs, torch.tensor([0, 1, 0, 1]))) > 0.5
        True
    """

    def __init__(self, kind: Kind, bins: int | None = None) -> None:
        super().__init__()
        if kind not in ("real", "binary"):
            raise ValueError(f'kind is "real" or "binary", not {kind!r}')
        if bins is not None and bins < 1:
            raise ValueError(f"bins must be at least 1, not {bins}")
        self.kind: Kind = kind
        self.bins = bins

    def average_precisions(self, outputs: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
        """Relaxed AP of every query, and which queries have a match at all.

        Args:
            outputs: (M, d) raw activations of the network; normalisation or tanh happens here.
            groups: (M,) integer group of each patch.

        Returns:
            (M,) AP, 0 where there is no match; (M,) bool.
        """
        if outputs.ndim != 2 or groups.shape != outputs.shape[:1]:
            raise ValueError(
                f"outputs must be (M, d) and groups (M,), not {tuple(outputs.shape)} and {tuple(groups.shape)}"
            )
        if outputs.dtype in (torch.float16, torch.bfloat16):
            outputs = outputs.float()  # counts up to M and distances near 0 need the precision
        with torch.autocast(outputs.device.type, enabled=False):
            if self.kind == "real":
                distances, reach = euclidean_distances(F.normalize(outputs, dim=1)), 2.0
            else:
                distances, reach = hamming_distances(torch.tanh(outputs)), float(outputs.shape[1])
            bins = self.bins or (25 if self.kind == "real" else outputs.shape[1])
            groups = groups.to(outputs.device)
            others = ~torch.eye(len(groups), dtype=torch.bool, device=groups.device)
            matches = (groups[:, None] == groups[None, :]) & others
            histograms = [
                soft_histogram(distances, chosen.to(distances.dtype), bins, reach / bins)
                for chosen in (matches, others)
            ]
            return relaxed_average_precision(*histograms), matches.any(1)

    def forward(self, outputs: Tensor, groups: Tensor) -> Tensor:
        """1 - mean AP over the queries that have a match, a scalar; arguments as `average_precisions`."""
        precisions, answerable = self.average_precisions(outputs, groups)
        if not answerable.any():
            raise ValueError("no patch of this batch has a match in it: sample whole groups of two or more")
        return 1 - precisions[answerable].mean()
