"""What each query of a batch ranks: everything the objective needs to know besides the descriptors."""

from dataclasses import dataclass

import torch
from torch import Tensor

from doap.types import Kind


def reach(kind: Kind, dimensions: int) -> float:
    """The largest distance there is: 2 between unit vectors, all bits between binary descriptors."""
    return 2.0 if kind == "real" else float(dimensions)


def check_labels(name: str, labels: Tensor, items: int) -> None:
    """Refuse labels that are not one integer an item."""
    if labels.shape != (items,) or labels.is_floating_point():
        raise ValueError(f"{name} must be {items} integers, one an output, not {tuple(labels.shape)} {labels.dtype}")


def check_batch(outputs: Tensor, groups: Tensor) -> None:
    """Refuse what no objective can work on."""
    if outputs.ndim != 2 or not outputs.is_floating_point():
        raise ValueError(f"outputs must be (M, d) floats, not {tuple(outputs.shape)} {outputs.dtype}")
    check_labels("groups", groups, len(outputs))


def check_matches(found: Tensor) -> None:
    """Refuse a batch in which no bool says that there is a match. On a GPU this waits for the work before it."""
    if not found.any():
        raise ValueError("no patch of this batch has a match in it: sample whole groups of two or more")


@dataclass(frozen=True)
class IgnoreTable:
    """Pairs that count neither as match nor as non-match, without an M x M mask.

    Items whose labels ignore each other leave each other's list; two patches of one group never do. A
    label can stand for anything: with clusters inside sequences, give every cluster of every sequence
    its own label and let the table say which of them look too much alike.

    Args:
        labels: (M,) integer label of each item, in 0..K-1.
        table: (K, K) bool, symmetric: whether two labels ignore each other.
    """

    labels: Tensor
    table: Tensor

    def check(self, items: int) -> None:
        """Refuse a table that does not fit a batch of so many items.

        What a table or labels on a GPU hold is not looked at: every batch would wait for the answer.
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
        """Ignore what either ignores: a label of the result stands for a pair of labels that some item has.

        With labels on the CPU a GPU that holds the tables never waits.
        """
        pairs = self.labels * len(other.table) + other.labels.to(self.labels.device)
        names, labels = torch.unique(pairs, return_inverse=True)
        table = self.table
        mine = (names // len(other.table)).to(table.device, non_blocking=True)
        theirs = (names % len(other.table)).to(table.device, non_blocking=True)
        others = other.table.to(table.device)
        return IgnoreTable(labels, table[mine][:, mine] | others[theirs][:, theirs])


@dataclass(frozen=True)
class Lists:
    """The lists of a batch whose items are sorted by group, so that matches sit near the diagonal.

    Args:
        kind: which distance, Euclidean ("real") or Hamming ("binary").
        bins: b, the number of bin intervals.
        width: w, the distance between two bin centres.
        groups: (M,) int64, ascending.
        ignore: in the same order, or None.
        rows: the queries to work on; each of them ranks all M items.
    """

    kind: Kind
    bins: int
    width: float
    groups: Tensor
    ignore: IgnoreTable | None
    rows: range
