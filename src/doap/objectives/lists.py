"""Ranked lists of a batch: checks of the input, pairs to ignore, and the parameters of the histograms."""

from dataclasses import dataclass

import torch
from torch import Tensor

from doap.types import Kind


def max_distance(kind: Kind, dimensions: int) -> float:
    """Return the largest possible distance: 2 between unit vectors, the number of bits between binary descriptors."""
    return 2.0 if kind == "real" else float(dimensions)


def check_labels(name: str, labels: Tensor, items: int) -> None:
    """Raise a ValueError unless `labels` holds one integer per item."""
    if labels.shape != (items,) or labels.is_floating_point() or labels.is_complex():
        raise ValueError(f"{name} must be {items} integers, one per output, not {tuple(labels.shape)} {labels.dtype}")


def check_batch(outputs: Tensor, groups: Tensor) -> None:
    """Raise a ValueError unless `outputs` are (M, d) floats and `groups` are (M,) integers."""
    if outputs.ndim != 2 or not outputs.is_floating_point():
        raise ValueError(f"outputs must be (M, d) floats, not {tuple(outputs.shape)} {outputs.dtype}")
    check_labels("groups", groups, len(outputs))


def check_matches(has_match: Tensor) -> None:
    """Raise a ValueError if no element of a bool tensor is true. On a GPU this synchronises."""
    if not has_match.any():
        raise ValueError("no patch of this batch has a match in it: sample whole groups of two or more")


@dataclass(frozen=True)
class IgnoreTable:
    """Pairs that count neither as match nor as non-match, without an M x M mask.

    Items whose labels ignore each other are left out of each other's list. Two patches of one group are never
    ignored. Labels can represent anything: for clusters inside sequences, give every cluster of every sequence
    its own label, and mark in the table which clusters look too much alike.

    Args:
        labels: (M,) integer label of each item, in 0..K-1.
        table: (K, K) bool, symmetric: whether two labels ignore each other.
    """

    labels: Tensor
    table: Tensor

    def check(self, items: int) -> None:
        """Raise a ValueError if the table does not fit a batch of this many items.

        The values of tables and labels on a GPU are not checked: that would synchronise in every batch.
        """
        if self.table.ndim != 2 or self.table.shape[0] != self.table.shape[1] or self.table.dtype != torch.bool:
            raise ValueError(f"the ignore table must be (K, K) bool, not {tuple(self.table.shape)} {self.table.dtype}")
        if self.table.device.type == "cpu" and not torch.equal(self.table, self.table.T):
            raise ValueError("the ignore table must be symmetric: labels ignore each other")
        check_labels("ignore labels", self.labels, items)
        if self.labels.device.type != "cpu" or not items:
            return
        if not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.table):
            raise ValueError(f"ignore labels must lie in 0..{len(self.table) - 1}, the rows of the table")

    def __or__(self, other: "IgnoreTable") -> "IgnoreTable":
        """Return the union of two tables: pairs that either ignores. Its labels are the pairs of labels that occur.

        With labels on the CPU, tables on a GPU are combined without synchronising.
        """
        pairs = self.labels.long() * len(other.table) + other.labels.to(self.labels.device).long()
        unique_pairs, labels = torch.unique(pairs, return_inverse=True)
        table = self.table
        own_labels = (unique_pairs // len(other.table)).to(table.device, non_blocking=True)
        other_labels = (unique_pairs % len(other.table)).to(table.device, non_blocking=True)
        other_table = other.table.to(table.device)
        return IgnoreTable(labels, table[own_labels][:, own_labels] | other_table[other_labels][:, other_labels])


@dataclass(frozen=True)
class RankedLists:
    """Parameters of the histograms of a batch whose items are sorted by group: matches lie near the diagonal.

    Args:
        kind: Which distance, Euclidean ("real") or Hamming ("binary").
        bins: b, the number of bin intervals.
        width: w, the distance between two bin centres.
        groups: (M,) int64, ascending.
        ignore: Pairs to ignore, in the same order, or None.
        rows: The queries to compute; each of them ranks all M items.
    """

    kind: Kind
    bins: int
    width: float
    groups: Tensor
    ignore: IgnoreTable | None
    rows: range
