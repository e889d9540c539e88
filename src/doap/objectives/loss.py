"""The objective to train with: one minus Average Precision, of each query, of pooled lists and of matching."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from doap.objectives.average_precision import (
    dense_histograms,
    pool,
    relaxed_average_precision,
    relaxed_descriptors,
    uneven,
)
from doap.objectives.fused import fused_histograms
from doap.objectives.lists import IgnoreTable, check_batch, check_labels, check_matches
from doap.objectives.matching import matching_precision
from doap.types import Kind

FINE = 100  # even bins of which uneven ones are made


class Batch(NamedTuple):
    """A checked batch: (M, d) unit vectors or relaxed bits, their (M,) groups, and what to leave out."""

    descriptors: Tensor
    groups: Tensor
    ignore: IgnoreTable | Tensor | None


class AveragePrecisionLoss(nn.Module):
    """1 - mean relaxed AP, every patch of the batch a query, the other patches of its group its matches.

    With `pooled` also the AP of lists that hold the pairs (query, item) of many queries at once, ranked by
    distance: per-query AP leaves open how the distances of different queries compare, which matters to
    whoever thresholds them. A pool's histograms are the sums of its queries' (notation as in
    `average_precision`), and its AP follows from them by the same formula:

        h⁺_k(p) = Σ_{q ∈ p} h⁺_k(q),   h_k(p) = Σ_{q ∈ p} h_k(q)
        AP(p) = 1/N⁺(p) Σ_k h⁺_k(p) (H⁺_{k-1}(p) + H⁺_k(p) + 1) / (H_{k-1}(p) + H_k(p) + 1)

        loss = 1 - mean_{q: S⁺ ≠ ∅} AP(q) + pooled · (1 - mean_{p: N⁺(p) > 0} AP(p)) + matching · (1 - AP_m)

    where N⁺(p) is how many pairs of the pool match. AP_m, the AP of matching, serves the same end with one list of
    all matches and nearest non-matches: see `matching`.

    Args:
        kind: "real" (L2-normalised, Euclidean) or "binary" (tanh, Hamming).
        bins: b, the number of bin intervals. By default 25 for real-valued descriptors, and the number
            of bits, one bin an integer distance, for binary ones: the paper's choices. 10 with `spacing`.
        pooled: weight of the pooled lists.
        matching: weight of the list of matching, whose bins are the usual ones whatever those of the others.
        spacing: by default bins are even in D. With an e they are even in u^e, where u is D²/4 between unit vectors
            and D/b between b bits, from 0 to 1: the larger, the wider are bins among near neighbours, and the
            narrower among the many that are far. FastAP's are even in u.

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
        pooled: float = 0.0,
        matching: float = 0.0,
        spacing: float | None = None,
    ) -> None:
        super().__init__()
        if kind not in ("real", "binary"):
            raise ValueError(f'kind is "real" or "binary", not {kind!r}')
        if spacing is not None and not 0 < spacing < float("inf"):
            raise ValueError(f"spacing is a power over 0, not {spacing}")
        if bins is not None and bins < 1:
            raise ValueError(f"bins must be at least 1, not {bins}")
        for name, weight in (("pooled", pooled), ("matching", matching)):
            if not 0 <= weight < float("inf"):
                raise ValueError(f"{name} is a weight, 0 or more, not {weight}")
        self.kind: Kind = kind
        self.bins = bins
        self.pooled = pooled
        self.matching = matching
        self.spacing = spacing

    def forward(
        self,
        outputs: Tensor,
        groups: Tensor,
        ignore: IgnoreTable | Tensor | None = None,
        pools: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of a batch, a scalar; not a number where a descriptor is not.

        Args:
            outputs: (M, d) raw activations of the network; normalisation or tanh happens here.
            groups: (M,) integer group of each patch. Left on the CPU, they are checked there, and a GPU never
                waits for the check.
            ignore: pairs to leave out of the lists, as an `IgnoreTable`; or, in batches small enough for
                M x M tensors, as an (M, M) bool mask, whether query i ignores item j. Patches of one group
                are never ignored.
            pools: (M,) integer pool of each query, such as its photo or sequence; by default all are one pool.
        """
        batch = self._check(outputs, groups, ignore)
        matches, ranked = self._histograms(batch)
        self._require_a_match(batch.groups, matches)
        loss = 1 - _mean_precision(matches, ranked)
        if self.pooled:
            if pools is not None:
                check_labels("pools", pools, len(matches))
                pools = pools.to(matches.device)
            loss = loss + self.pooled * (1 - _mean_precision(pool(matches, pools), pool(ranked, pools)))
        if self.matching:
            bins = self._even_bins(batch.descriptors)
            precision = matching_precision(batch.descriptors, batch.groups, self.kind, bins, batch.ignore)
            loss = loss + self.matching * (1 - precision)
        return loss

    def average_precisions(
        self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Relaxed AP of every query, 0 where there is no match, and which queries have a match at all: both (M,)."""
        matches, ranked = self.histograms(outputs, groups, ignore)
        return relaxed_average_precision(matches, ranked), _has_match(matches)

    def histograms(
        self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The histograms h⁺ and h of every query, each (M, bins + 1)."""
        return self._histograms(self._check(outputs, groups, ignore))

    def _check(self, outputs: Tensor, groups: Tensor, ignore: IgnoreTable | Tensor | None) -> Batch:
        """The batch, with what to ignore on the device of its descriptors."""
        check_batch(outputs, groups)
        descriptors, groups = relaxed_descriptors(outputs, self.kind), groups.to(torch.int64)
        if isinstance(ignore, Tensor):
            if ignore.shape != (len(groups), len(groups)) or ignore.dtype != torch.bool:
                raise ValueError(f"an ignore mask must be (M, M) bool, not {tuple(ignore.shape)} {ignore.dtype}")
            return Batch(descriptors, groups, ignore.to(outputs.device))
        if ignore is not None:
            ignore.check(len(groups))
            labels = ignore.labels.to(outputs.device, torch.int64, non_blocking=True)
            ignore = IgnoreTable(labels, ignore.table.to(outputs.device))
        return Batch(descriptors, groups, ignore)

    def _even_bins(self, descriptors: Tensor) -> int:
        usual = 25 if self.kind == "real" else descriptors.shape[1]
        return usual if self.bins is None or self.spacing is not None else self.bins

    def _histograms(self, batch: Batch) -> tuple[Tensor, Tensor]:
        descriptors, groups, ignore = batch
        if self.spacing is None:
            return self._even(descriptors, groups, self.kind, self._even_bins(descriptors), ignore)
        if self.kind == "real":  # on the sphere of radius √d, u = D²/4d is (d - F(x)ᵀF(x'))/2d, as of d bits
            descriptors = descriptors * descriptors.shape[1] ** 0.5
        return uneven(self._even(descriptors, groups, "binary", FINE, ignore), self.bins or 10, self.spacing)

    def _even(
        self, descriptors: Tensor, groups: Tensor, kind: Kind, bins: int, ignore: IgnoreTable | Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if isinstance(ignore, Tensor):
            return dense_histograms(descriptors, groups.to(descriptors.device), kind, bins, ignore)
        return self._fused(descriptors, groups, kind, bins, ignore)

    def _require_a_match(self, groups: Tensor, matches: Tensor) -> None:  # noqa: ARG002 (of all processes: below)
        if groups.device.type == "cpu" and (groups[1:] == groups[:-1]).any():
            return  # as a rule the patches of a group come together, and there is nothing to sort
        ordered = groups.sort().values
        check_matches(ordered[1:] == ordered[:-1])

    def _fused(
        self, descriptors: Tensor, groups: Tensor, kind: Kind, bins: int, ignore: IgnoreTable | None
    ) -> tuple[Tensor, Tensor]:
        return fused_histograms(descriptors, groups, kind, bins, ignore)


def _has_match(matches: Tensor) -> Tensor:
    return matches.detach().sum(1) > 0.5  # the sum is a whole number but for rounding


def _mean_precision(matches: Tensor, ranked: Tensor) -> Tensor:
    """Mean AP of the lists that have a match; the others' is 0."""
    return relaxed_average_precision(matches, ranked).sum() / _has_match(matches).sum()
