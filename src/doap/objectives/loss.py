"""The training objective: one minus Average Precision, per query, of pooled lists and of the matching list.

    loss = 1 - mean_q AP(q) + pooled_weight · (1 - mean_p AP(p)) + matching_weight · (1 - AP_m)

AP(q) is the paper's objective (section 3.2, see `average_precision`). The other two terms are additions.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from doap.objectives.average_precision import (
    dense_histograms,
    pool_histograms,
    rebin_histograms,
    relaxed_average_precision,
    relaxed_descriptors,
)
from doap.objectives.fused import fused_histograms
from doap.objectives.lists import IgnoreTable, check_batch, check_labels, check_matches
from doap.objectives.matching import matching_average_precision
from doap.types import Kind

FINE_BINS = 100  # even bins from which uneven ones are computed
DEFAULT_REAL_BINS = 25
DEFAULT_UNEVEN_BINS = 10


class DescriptorBatch(NamedTuple):
    """A checked batch: (M, d) unit vectors or relaxed bits, (M,) int64 groups, and the pairs to ignore."""

    descriptors: Tensor
    groups: Tensor
    ignore: IgnoreTable | Tensor | None


class AveragePrecisionLoss(nn.Module):
    """1 - mean relaxed AP; every patch of the batch is a query, the other patches of its group are its matches.

    With `pooled_weight` also the AP of lists that hold the pairs (query, item) of many queries, ranked by distance.
    The AP of single queries does not constrain how distances of different queries compare, which matters when
    matches are thresholded by distance. The histograms of a pool p are the sums over its queries (notation as in
    `average_precision`), and its AP follows by the same formula:

        h⁺_k(p) = Σ_{q ∈ p} h⁺_k(q),   h_k(p) = Σ_{q ∈ p} h_k(q)
        AP(p) = 1/N⁺(p) Σ_k h⁺_k(p) (H⁺_{k-1}(p) + H⁺_k(p) + 1) / (H_{k-1}(p) + H_k(p) + 1)

        loss = 1 - mean_{q: S⁺ ≠ ∅} AP(q)
                 + pooled_weight · (1 - mean_{p: N⁺(p) > 0} AP(p)) + matching_weight · (1 - AP_m)

    N⁺(p) is the number of matching pairs of the pool. AP_m is the AP of one list of all matches and nearest
    non-matches, with the same purpose: see `matching`.

    Args:
        kind: "real" (L2-normalised, Euclidean) or "binary" (tanh, Hamming).
        bins: b, the number of bin intervals. The default is the paper's: 25 for real-valued descriptors, and the
            number of bits for binary ones, one bin per integer distance. With `bin_power` the default is 10.
        pooled_weight: Weight of the pooled lists.
        matching_weight: Weight of the matching list. With `bin_power`, its bins are the paper's.
        bin_power: None for bins that are even in D. Otherwise bins are even in u^bin_power, where u in [0, 1] is
            D²/4 between unit vectors and D/d between d bits. Larger powers give wider bins among near neighbours
            and narrower bins among the many distant items. A power of 1 gives FastAP's bins.

    Example:
        >>> import torch
        >>> loss = AveragePrecisionLoss("real")
        >>> outputs = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
        >>> float(loss(outputs, torch.tensor([0, 0, 1, 1])))  # every match ranks first
        0.0
        >>> float(loss(outputs, torch.tensor([0, 1, 0, 1]))) > 0.5
        True
    """

    def __init__(
        self,
        kind: Kind,
        bins: int | None = None,
        pooled_weight: float = 0.0,
        matching_weight: float = 0.0,
        bin_power: float | None = None,
    ) -> None:
        super().__init__()
        if kind not in ("real", "binary"):
            raise ValueError(f'kind must be "real" or "binary", not {kind!r}')
        if bin_power is not None and not 0 < bin_power < float("inf"):
            raise ValueError(f"bin_power must be greater than 0 and finite, not {bin_power}")
        if bins is not None and bins < 1:
            raise ValueError(f"bins must be at least 1, not {bins}")
        for name, weight in (("pooled_weight", pooled_weight), ("matching_weight", matching_weight)):
            if not 0 <= weight < float("inf"):
                raise ValueError(f"{name} must be at least 0 and finite, not {weight}")
        self.kind: Kind = kind
        self.bins = bins
        self.pooled_weight = pooled_weight
        self.matching_weight = matching_weight
        self.bin_power = bin_power

    def forward(
        self,
        outputs: Tensor,
        groups: Tensor,
        ignore: IgnoreTable | Tensor | None = None,
        pools: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of a batch, a scalar; NaN if a descriptor is NaN.

        Args:
            outputs: (M, d) raw activations of the network; normalisation or tanh is applied here.
            groups: (M,) integer group of each patch. On the CPU they are checked without synchronising a GPU.
            ignore: Pairs to leave out of the lists, as an `IgnoreTable`, or, in batches small enough for M x M
                tensors, as an (M, M) bool mask: whether query i ignores item j. Patches of one group are never
                ignored.
            pools: (M,) integer pool of each query, such as its photo or sequence; one pool of all by default.

        Raises:
            ValueError: If shapes or types are wrong, or no patch has a match.
        """
        batch = self._check(outputs, groups, ignore)
        matches, ranked = self._histograms(batch)
        self._check_has_match(batch.groups, matches)
        loss = 1 - _mean_precision(matches, ranked)
        if self.pooled_weight:
            if pools is not None:
                check_labels("pools", pools, len(matches))
                pools = pools.to(matches.device)
            precision = _mean_precision(pool_histograms(matches, pools), pool_histograms(ranked, pools))
            loss = loss + self.pooled_weight * (1 - precision)
        if self.matching_weight:
            bins = self._even_bins(batch.descriptors)
            precision = matching_average_precision(batch.descriptors, batch.groups, self.kind, bins, batch.ignore)
            loss = loss + self.matching_weight * (1 - precision)
        return loss

    def average_precisions(
        self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the relaxed AP of every query, 0 without a match, and whether it has a match: both (M,)."""
        matches, ranked = self.histograms(outputs, groups, ignore)
        return relaxed_average_precision(matches, ranked), _has_match(matches)

    def histograms(
        self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the histograms h⁺ and h of every query, each (M, bins + 1)."""
        return self._histograms(self._check(outputs, groups, ignore))

    def _check(self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | Tensor | None) -> DescriptorBatch:
        """Check a batch and move the pairs to ignore to the device of its outputs."""
        check_batch(outputs, groups)
        descriptors, groups = relaxed_descriptors(outputs, self.kind), groups.to(torch.int64)
        if isinstance(ignore, Tensor):
            if ignore.shape != (len(groups), len(groups)) or ignore.dtype != torch.bool:
                raise ValueError(f"an ignore mask must be (M, M) bool, not {tuple(ignore.shape)} {ignore.dtype}")
            return DescriptorBatch(descriptors, groups, ignore.to(outputs.device))
        if ignore is not None:
            ignore.check(len(groups))
            labels = ignore.labels.to(outputs.device, torch.int64, non_blocking=True)
            ignore = IgnoreTable(labels, ignore.table.to(outputs.device))
        return DescriptorBatch(descriptors, groups, ignore)

    def _even_bins(self, descriptors: Tensor) -> int:
        """Return the number of bins that are even in D."""
        default = DEFAULT_REAL_BINS if self.kind == "real" else descriptors.shape[1]
        return default if self.bins is None or self.bin_power is not None else self.bins

    def _histograms(self, batch: DescriptorBatch) -> tuple[Tensor, Tensor]:
        descriptors, groups, ignore = batch
        if self.bin_power is None:
            return self._even_histograms(descriptors, groups, self.kind, self._even_bins(descriptors), ignore)
        if self.kind == "real":  # scaled to length √d, u = D²/4d is (d - F(x)ᵀF(x'))/2d, as for d bits
            descriptors = descriptors * descriptors.shape[1] ** 0.5
        fine = self._even_histograms(descriptors, groups, "binary", FINE_BINS, ignore)
        return rebin_histograms(fine, self.bins or DEFAULT_UNEVEN_BINS, self.bin_power)

    def _even_histograms(
        self, descriptors: Tensor, groups: Tensor, kind: Kind, bins: int, ignore: IgnoreTable | Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if isinstance(ignore, Tensor):
            return dense_histograms(descriptors, groups.to(descriptors.device), kind, bins, ignore)
        return self._fused_histograms(descriptors, groups, kind, bins, ignore)

    def _check_has_match(self, groups: Tensor, matches: Tensor) -> None:  # noqa: ARG002 (used by the distributed loss)
        if groups.device.type == "cpu" and (groups[1:] == groups[:-1]).any():
            return  # patches of a group are usually adjacent: no sort needed
        ordered = groups.sort().values
        check_matches(ordered[1:] == ordered[:-1])

    def _fused_histograms(
        self, descriptors: Tensor, groups: Tensor, kind: Kind, bins: int, ignore: IgnoreTable | None
    ) -> tuple[Tensor, Tensor]:
        return fused_histograms(descriptors, groups, kind, bins, ignore)


def _has_match(matches: Tensor) -> Tensor:
    return matches.detach().sum(1) > 0.5  # the sum is an integer up to rounding


def _mean_precision(matches: Tensor, ranked: Tensor) -> Tensor:
    """Return the mean AP of the lists that have a match; the AP of the others is 0."""
    return relaxed_average_precision(matches, ranked).sum() / _has_match(matches).sum()
