"""Vocabulary tree of binary descriptors, as in DBoW2: descriptors to words, images to bags of words."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from doap.errors import DoapError

Bits = NDArray[np.uint8]
"""(N, bits / 8) packed bits, most significant bit first, as ORB's and `np.packbits`'."""

BIT_COUNTS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(1, dtype=np.uint8)
BLOCK = 4096  # descriptors compared with the children of their nodes at once


@dataclass(frozen=True, eq=False)
class BagOfWords:
    """Bag of words of an image, normalised to the sum 1.

    Attributes:
        words: (W,) int64 words of the image, ascending.
        values: (W,) float64 term frequency x inverse document frequency of each.
    """

    words: NDArray[np.int64]
    values: NDArray[np.float64]


class Vocabulary:
    """Tree whose leaves are the words.

    Node 0 is the root. The children of a node have larger ids than the node. Words are numbered in the order of their
    node ids.

    Attributes:
        branching: Largest number of children of a node, k.
        depth: Largest number of levels below the root, L.
        parents: (N,) int64 parent of each node; that of the root is 0.
        descriptors: (N, bits / 8) uint8 centre of each node; that of the root is 0.
        weights: (N,) float64 inverse document frequencies of the words; 0 for other nodes.
        words: (W,) int64 node of each word.
    """

    def __init__(
        self, branching: int, depth: int, parents: NDArray[np.int64], descriptors: Bits, weights: NDArray[np.float64]
    ) -> None:
        """Check the tree and index it.

        Raises:
            DoapError: If the arrays are not a tree of at least one word.
        """
        self.branching, self.depth = branching, depth
        self.parents, self.descriptors, self.weights = parents, descriptors, weights
        ids = np.arange(1, len(parents))
        if not len(ids) or (parents[1:] >= ids).any() or (parents < 0).any():
            raise DoapError("not a vocabulary: it needs words, and each node a parent before it")
        counts = np.bincount(parents[1:], minlength=len(parents))
        if counts.max() > branching:
            raise DoapError(f"not a vocabulary: a node has {counts.max()} children, more than k = {branching}")
        self.words = np.flatnonzero(counts == 0)
        self._word_ids = np.cumsum(counts == 0) - 1
        # Children of each node in the order of their ids; the last stands in for those that a node does not have.
        order = np.argsort(parents[1:], kind="stable") + 1
        starts = np.cumsum(counts) - counts
        columns = np.minimum(np.arange(counts.max()), np.maximum(counts - 1, 0)[:, None])
        positions = np.minimum(starts[:, None] + columns, len(order) - 1)
        self._children = np.where(counts[:, None] > 0, order[positions], -1).astype(np.int32)

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} words of {8 * self.bytes} bits, k = {self.branching}, L = {self.depth})"

    @property
    def bytes(self) -> int:
        """Size of a descriptor in bytes."""
        return int(self.descriptors.shape[1])

    @property
    def word_weights(self) -> NDArray[np.float64]:
        """Inverse document frequency of each word, (W,)."""
        return self.weights[self.words]

    def find_words(self, descriptors: Bits) -> NDArray[np.int64]:
        """Return the word of each descriptor, (N,): from the root on, the nearest child; of equally near, the first.

        Raises:
            DoapError: If the descriptors are not packed bits of the length of the vocabulary's.
        """
        if descriptors.dtype != np.uint8 or descriptors.shape[1:] != (self.bytes,):
            raise DoapError(
                f"descriptors must be (N, {self.bytes}) uint8, as the vocabulary's, "
                f"not {descriptors.shape} {descriptors.dtype}"
            )
        nodes = np.zeros(len(descriptors), np.int64)
        for start in range(0, len(descriptors), BLOCK):
            block = slice(start, start + BLOCK)
            nodes[block] = self._descend(descriptors[block])
        return self._word_ids[nodes]

    def _descend(self, descriptors: Bits) -> NDArray[np.int64]:
        nodes = np.zeros(len(descriptors), np.int64)
        active = np.arange(len(descriptors))
        while len(active):
            children = self._children[nodes[active]]
            different = self.descriptors[children] ^ descriptors[active, None]
            nearest = BIT_COUNTS[different].sum(2, dtype=np.int64).argmin(1)
            nodes[active] = children[np.arange(len(active)), nearest]
            active = active[self._children[nodes[active], 0] >= 0]
        return nodes

    def transform(self, descriptors: Bits) -> BagOfWords:
        """Return the bag of words of an image, by term frequency and inverse document frequency.

        Words of weight 0 are left out: every image of the training has them.
        """
        words, counts = np.unique(self.find_words(descriptors), return_counts=True)
        values = counts * self.word_weights[words]
        words, values = words[values > 0], values[values > 0]
        return BagOfWords(words, values / values.sum() if len(values) else values)


def score(first: BagOfWords, second: BagOfWords) -> float:
    """Return DBoW2's L1 score of two images, 1 - |v - w|₁ / 2: 1 for equal bags of words, 0 without common words."""
    _, a, b = np.intersect1d(first.words, second.words, assume_unique=True, return_indices=True)
    return float(np.minimum(first.values[a], second.values[b]).sum())
