"""Descriptors to words, images to bags of words, and their score."""

import numpy as np
import pytest
from numpy.typing import NDArray

from doap import DoapError
from doap.bridges.dbow import BagOfWords, Vocabulary, score

Bits = NDArray[np.uint8]


def descend(vocabulary: Vocabulary, descriptor: Bits) -> int:
    """Return the leaf of a descriptor, node by node, as DBoW2's transform."""
    node = 0
    while len(children := np.flatnonzero(vocabulary.parents[1:] == node) + 1):
        best = None
        for child in children.tolist():
            distance = int(np.unpackbits(descriptor ^ vocabulary.descriptors[child]).sum())
            if best is None or distance < best:
                best, node = distance, child
    return node


def test_words_are_found_as_by_dbow2(vocabulary: Vocabulary) -> None:
    descriptors = np.random.default_rng(3).integers(0, 256, (60, 32), np.uint8)
    nodes = vocabulary.words[vocabulary.find_words(descriptors)]
    assert nodes.tolist() == [descend(vocabulary, one) for one in descriptors]


def test_the_first_of_equally_near_children_is_taken() -> None:
    centres = np.zeros((4, 32), np.uint8)
    centres[1:, 0] = 1, 2, 4  # one bit from 0 each
    vocabulary = Vocabulary(3, 1, np.zeros(4, np.int64), centres, np.ones(4))
    assert vocabulary.find_words(np.zeros((1, 32), np.uint8)).tolist() == [0]


def test_bags_of_words_are_normalised_and_scored(images: list[Bits], vocabulary: Vocabulary) -> None:
    dense = np.zeros((len(images), len(vocabulary)))
    bags = [vocabulary.transform(descriptors) for descriptors in images]
    for row, descriptors, bag in zip(dense, images, bags, strict=True):
        np.add.at(row, vocabulary.find_words(descriptors), 1)
        row *= vocabulary.word_weights
        row /= row.sum()
        np.testing.assert_array_equal(bag.words, np.flatnonzero(row))
        np.testing.assert_allclose(bag.values, row[bag.words])
    for a in range(3):
        for b in range(3):
            np.testing.assert_allclose(score(bags[a], bags[b]), 1 - 0.5 * np.abs(dense[a] - dense[b]).sum())


def test_an_image_without_keypoints_has_an_empty_bag(images: list[Bits], vocabulary: Vocabulary) -> None:
    empty = vocabulary.transform(np.zeros((0, 32), np.uint8))
    assert (len(empty.words), len(empty.values)) == (0, 0)
    assert score(empty, vocabulary.transform(images[0])) == 0


def test_bags_without_common_words_score_zero() -> None:
    first, second = (BagOfWords(np.array([word]), np.ones(1)) for word in (1, 2))
    assert score(first, second) == 0
    assert score(first, first) == 1


@pytest.mark.parametrize("wrong", [np.zeros((2, 16), np.uint8), np.zeros((2, 32), np.float32), np.zeros(32, np.uint8)])
def test_descriptors_of_another_form_are_refused(vocabulary: Vocabulary, wrong: Bits) -> None:
    with pytest.raises(DoapError, match=r"must be \(N, 32\) uint8"):
        vocabulary.transform(wrong)
