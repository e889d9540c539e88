"""Training of a vocabulary tree: hierarchical k-medians over Hamming distance, as in DBoW2.

The descriptors of a node are divided into k clusters, whose centres are the bitwise majorities of their members, and
each cluster is divided likewise, down to level L. Initial centres are chosen by k-means++. Unlike in DBoW2, equal
descriptors give one word, and clusters that lost all members are dropped: no word is out of reach.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.bridges.dbow.vocabulary import Bits, Vocabulary
from doap.errors import DoapError, inflect
from doap.types import Progress, no_progress

Labels = NDArray[np.int64]

MAX_BRANCHING, MAX_DEPTH = 20, 10  # the loaders of ORB-SLAM and DBoW3 refuse more
MAX_WORDS = 10**7  # the loaders reserve memory for k^(L + 1) words
MAX_ITERATIONS = 50  # of a node; it converges after about ten
BLOCK = 1 << 15  # descriptors whose bits are unpacked at once


def train_vocabulary(
    images: Sequence[Bits], k: int = 10, levels: int = 6, *, seed: int = 0, progress: Progress = no_progress
) -> Vocabulary:
    """Train a vocabulary on the descriptors of images, with inverse document frequencies as weights.

    Args:
        images: (N, bits / 8) uint8 descriptors of each image.
        k: Largest number of children of a node.
        levels: Largest number of levels, L; there are up to k^L words.
        seed: Seed of the initial centres; the same descriptors and seed give the same tree.
        progress: Called with the numbers of finished and of all descriptors.

    Raises:
        DoapError: If fewer than two images have descriptors, the descriptors are not packed bits of one length or all
            equal, or the tree is larger than ORB-SLAM and DBoW3 read.

    Example:
        >>> import numpy as np
        >>> images = np.random.default_rng(0).integers(0, 256, (20, 100, 32), np.uint8)
        >>> train_vocabulary(list(images), k=10, levels=2)
        Vocabulary(100 words of 256 bits, k = 10, L = 2)
    """
    filled = [descriptors for descriptors in images if len(descriptors)]
    check_size(k, levels)
    check_images(filled)
    vocabulary = grow_tree(np.concatenate(filled), k, levels, seed, progress)
    return weigh_words(vocabulary, filled)


def check_size(k: int, levels: int) -> None:
    """Check that ORB-SLAM and DBoW3 can read a tree of this size.

    Raises:
        DoapError: If they cannot.
    """
    if not 2 <= k <= MAX_BRANCHING or not 1 <= levels <= MAX_DEPTH:
        raise DoapError(
            f"k = {k}, L = {levels}: ORB-SLAM and DBoW3 read vocabularies of k = 2 to {MAX_BRANCHING} "
            f"and L = 1 to {MAX_DEPTH}"
        )
    if k**levels > MAX_WORDS:
        raise DoapError(f"k = {k}, L = {levels}: up to {k**levels:,} words; choose k and L for at most {MAX_WORDS:,}")


def check_images(images: Sequence[Bits]) -> None:
    """Check the descriptors of the images that have some.

    Raises:
        DoapError: If there are fewer than two, or they are not packed bits of one length.
    """
    if len(images) < 2:
        noun = inflect(len(images), "image")
        raise DoapError(f"{len(images)} {noun} with keypoints; a vocabulary needs at least two, better hundreds")
    for descriptors in images:
        if descriptors.dtype != np.uint8 or descriptors.ndim != 2 or descriptors.shape[1:] != images[0].shape[1:]:
            raise DoapError(
                f"a vocabulary needs packed bits of one length, not {descriptors.dtype} {descriptors.shape} "
                f"beside {images[0].dtype} {images[0].shape}; use a binary model such as doap-256b"
            )


def grow_tree(descriptors: Bits, k: int, levels: int, seed: int, progress: Progress) -> Vocabulary:
    """Divide (N, bits / 8) descriptors into a tree whose weights are 0.

    Raises:
        DoapError: If all descriptors are equal.
    """
    tree = _Tree(k, np.random.default_rng(seed), descriptors, progress)
    tree.grow(0, descriptors, levels)
    parents = np.array(tree.parents, np.int64)
    if len(parents) < 2:
        raise DoapError(f"all {len(descriptors)} descriptors are equal; a vocabulary needs images with texture")
    return Vocabulary(k, levels, parents, np.concatenate(tree.centres), np.zeros(len(parents)))


def weigh_words(vocabulary: Vocabulary, images: Iterable[Bits], progress: Progress = no_progress) -> Vocabulary:
    """Return the vocabulary with the weights ln(images / images with the word).

    Args:
        vocabulary: A tree.
        images: Descriptors of each image that has some, read once: all that the tree was trained on, or more.
        progress: Called with the number of finished images, as both numbers.
    """
    with_word = np.zeros(len(vocabulary))
    count = 0
    for count, descriptors in enumerate(images, 1):
        with_word[np.unique(vocabulary.find_words(descriptors))] += 1
        progress(count, count)
    weights = np.zeros(len(vocabulary.parents))
    weights[vocabulary.words] = np.log(count / with_word)
    return Vocabulary(vocabulary.branching, vocabulary.depth, vocabulary.parents, vocabulary.descriptors, weights)


class _Tree:
    """A tree that grows depth first; the children of a node get consecutive ids, as in DBoW2."""

    def __init__(self, k: int, random: np.random.Generator, descriptors: Bits, progress: Progress) -> None:
        self.k, self.random = k, random
        self.parents = [0]
        self.centres = [np.zeros((1, descriptors.shape[1]), np.uint8)]
        self._done, self._total, self._progress = 0, len(descriptors), progress

    def grow(self, node: int, descriptors: Bits, levels: int) -> None:
        """Divide the descriptors of a node that has `levels` levels below it."""
        centres, labels = cluster(descriptors, self.k, self.random)
        if len(centres) < 2:
            return self._finish(len(descriptors))
        first = len(self.parents)
        self.parents += [node] * len(centres)
        self.centres.append(centres)
        order, starts = _group(labels, len(centres))
        for child, members in enumerate(np.split(order, starts[1:])):
            if levels > 1 and len(members) > 1:
                self.grow(first + child, descriptors[members], levels - 1)
            else:
                self._finish(len(members))
        return None

    def _finish(self, count: int) -> None:
        self._done += count
        self._progress(self._done, self._total)


def cluster(descriptors: Bits, k: int, random: np.random.Generator) -> tuple[Bits, Labels]:
    """Divide (N, bits / 8) descriptors into up to k clusters.

    Returns:
        (C, bits / 8) centres, fewer than k if there are fewer different descriptors or a cluster lost all members; (N,)
        the nearest centre of each descriptor, of equally near ones the first.
    """
    if len(descriptors) <= k:
        rows = {row.tobytes(): None for row in descriptors}
        centres = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)
        return centres, _nearest(descriptors, centres)[0]
    centres = choose_centres(descriptors, k, random)
    labels, _ = _nearest(descriptors, centres)
    for _ in range(MAX_ITERATIONS):
        centres = majorities(descriptors, labels, centres)
        previous, (labels, _) = labels, _nearest(descriptors, centres)
        if np.array_equal(labels, previous):
            break
    used, labels = np.unique(labels, return_inverse=True)
    return centres[used], labels


def choose_centres(descriptors: Bits, k: int, random: np.random.Generator) -> Bits:
    """Choose initial centres by k-means++: each with a probability proportional to its distance from those chosen.

    The Hamming distance is the square of the Euclidean distance between bits. There are fewer than k centres if there
    are fewer different descriptors.
    """
    chosen = [int(random.integers(len(descriptors)))]
    distances = _nearest(descriptors, descriptors[chosen])[1]
    while len(chosen) < k:
        cumulative = np.cumsum(distances)
        if not cumulative[-1]:
            break
        chosen.append(int(np.searchsorted(cumulative, random.integers(cumulative[-1]), side="right")))
        distances = np.minimum(distances, _nearest(descriptors, descriptors[chosen[-1:]])[1])
    return descriptors[chosen]


def majorities(descriptors: Bits, labels: Labels, centres: Bits) -> Bits:
    """Return the bitwise majority of the members of each cluster, 1 where equal; a cluster without keeps its centre."""
    ones = np.zeros((len(centres), 8 * descriptors.shape[1]), np.int64)
    for start in range(0, len(descriptors), BLOCK):
        block = slice(start, start + BLOCK)
        order, starts = _group(labels[block], len(centres))
        # Eight bits, each in its own byte, are added at once. Sums of up to 255 rows do not overflow.
        lanes = np.unpackbits(descriptors[block][order], axis=1).view(np.uint64)
        bounds = np.append(starts, len(order))
        for label, (low, high) in enumerate(pairwise(bounds)):
            if low < high:
                sums = np.add.reduceat(lanes[low:high], np.arange(0, high - low, 255), axis=0)
                ones[label] += sums.view(np.uint8).sum(0, dtype=np.int64)
    sizes = np.bincount(labels, minlength=len(centres))
    result = np.packbits(2 * ones >= sizes[:, None], axis=1)
    return np.where(sizes[:, None] > 0, result, centres)


def _group(labels: Labels, count: int) -> tuple[Labels, Labels]:
    """Return the order that sorts labels, and where each of `count` labels starts in it."""
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels, minlength=count)
    return order, np.cumsum(sizes) - sizes


def _nearest(descriptors: Bits, centres: Bits) -> tuple[Labels, Labels]:
    """Return the nearest centre of each descriptor, of equally near ones the first, and its distance."""
    distances, indices = cv2.batchDistance(descriptors, centres, cv2.CV_32S, normType=cv2.NORM_HAMMING, K=1)
    return indices[:, 0].astype(np.int64), distances[:, 0].astype(np.int64)
