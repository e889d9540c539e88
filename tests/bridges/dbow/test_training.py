"""Training of vocabulary trees."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from doap import DoapError
from doap.bridges.dbow import Vocabulary, train_vocabulary
from doap.bridges.dbow.training import choose_centres, cluster, majorities

Bits = NDArray[np.uint8]


def hamming(first: Bits, second: Bits) -> NDArray[np.int64]:
    """Return all distances, (N, K)."""
    return np.asarray((np.unpackbits(first, axis=1)[:, None] != np.unpackbits(second, axis=1)).sum(2))


def test_centres_are_bitwise_majorities() -> None:
    random = np.random.default_rng(0)
    descriptors = random.integers(0, 256, (2000, 32), np.uint8)
    labels = np.minimum(random.integers(0, 3, 2000), 1)  # a cluster of more than 255 rows, and one without members
    labels[:4] = 3
    centres = majorities(descriptors, labels, random.integers(0, 256, (5, 32), np.uint8) * 0 + 9)
    for label in (0, 1, 3):
        bits = np.unpackbits(descriptors[labels == label], axis=1)
        ties_are_one = 2 * bits.sum(0, dtype=int) >= len(bits)
        np.testing.assert_array_equal(np.unpackbits(centres[label]), ties_are_one)
    assert (centres[[2, 4]] == 9).all()


def test_clusters_are_found() -> None:
    random = np.random.default_rng(0)
    true = random.integers(0, 2, (8, 256), np.uint8)
    labels = random.integers(0, 8, 4000)
    descriptors = np.packbits(true[labels] ^ (random.random((4000, 256)) < 0.2), axis=1)
    # One start of k-means++ can merge two clusters, as in DBoW2.
    runs = [cluster(descriptors, 8, np.random.default_rng(seed)) for seed in range(5)]
    costs = [hamming(descriptors, centres).min(1).mean() for centres, _ in runs]
    best, assigned = runs[int(np.argmin(costs))]
    assert sorted(map(bytes, best)) == sorted(map(bytes, np.packbits(true, axis=1)))
    assert len(set(zip(labels.tolist(), assigned.tolist(), strict=True))) == 8


def test_members_are_nearest_to_their_centre(images: list[Bits]) -> None:
    descriptors = np.concatenate(images)
    centres, labels = cluster(descriptors, 7, np.random.default_rng(0))
    np.testing.assert_array_equal(hamming(descriptors, centres).argmin(1), labels)
    assert set(labels) == set(range(len(centres)))


def test_initial_centres_are_drawn_by_distance() -> None:
    # Two groups of equal descriptors, one far away: both are chosen, none twice.
    descriptors = np.zeros((1000, 32), np.uint8)
    descriptors[500:501] = 255
    for seed in range(10):
        chosen = choose_centres(descriptors, 5, np.random.default_rng(seed))
        assert sorted(chosen[:, 0].tolist()) == [0, 255]


def test_words_are_reached_and_weighted_by_images(images: list[Bits], vocabulary: Vocabulary) -> None:
    words = [set(vocabulary.find_words(descriptors).tolist()) for descriptors in images]
    assert set().union(*words) == set(range(len(vocabulary)))
    counts = np.array([sum(word in one for one in words) for word in range(len(vocabulary))])
    np.testing.assert_allclose(vocabulary.word_weights, np.log(len(images) / counts))
    depths = np.zeros(len(vocabulary.parents), int)
    for node in range(1, len(depths)):
        depths[node] = depths[vocabulary.parents[node]] + 1
    assert depths.max() == 3
    siblings = [np.flatnonzero(vocabulary.parents[1:] == node) for node in set(vocabulary.parents.tolist())]
    assert all((np.diff(group) == 1).all() and 2 <= len(group) <= 5 for group in siblings)


def test_the_seed_decides(images: list[Bits], vocabulary: Vocabulary) -> None:
    again = train_vocabulary(images, k=5, levels=3)
    np.testing.assert_array_equal(again.descriptors, vocabulary.descriptors)
    np.testing.assert_array_equal(again.weights, vocabulary.weights)
    other = train_vocabulary(images, k=5, levels=3, seed=1)
    assert (
        other.descriptors.shape != vocabulary.descriptors.shape or (other.descriptors != vocabulary.descriptors).any()
    )


def test_few_and_equal_descriptors_give_one_word_each() -> None:
    random = np.random.default_rng(0)
    rows = random.integers(0, 256, (30, 32), np.uint8)
    images = [rows[:20], np.repeat(rows[10:], 5, axis=0), rows[:0]]
    vocabulary = train_vocabulary(images, k=10, levels=6)
    assert len(vocabulary) == 30
    words = vocabulary.find_words(rows)
    assert sorted(words.tolist()) == list(range(30))
    np.testing.assert_array_equal(vocabulary.descriptors[vocabulary.words[words]], rows)
    expected = np.where((np.arange(30) >= 10) & (np.arange(30) < 20), 0, np.log(2))  # blank images do not count
    np.testing.assert_allclose(vocabulary.word_weights[words], expected)


def test_progress_counts_all_descriptors(images: list[Bits]) -> None:
    calls: list[tuple[int, int]] = []
    train_vocabulary(images, k=4, levels=4, progress=lambda done, total: calls.append((done, total)))
    total = sum(map(len, images))
    assert calls[-1] == (total, total)
    assert calls == sorted(calls)


@pytest.mark.parametrize(
    ("k", "levels", "message"),
    [(1, 6, "k = 2 to 20"), (21, 2, "k = 2 to 20"), (10, 0, "L = 1 to 10"), (2, 11, "L = 1"), (20, 10, "at most")],
)
def test_sizes_that_orb_slam_refuses_are_refused(images: list[Bits], k: int, levels: int, message: str) -> None:
    with pytest.raises(DoapError, match=message):
        train_vocabulary(images, k, levels)


def test_unusable_descriptors_are_refused(images: list[Bits]) -> None:
    one = images[0]
    cases: list[tuple[list[Any], str]] = [
        ([one], "1 image with keypoints"),
        ([one, one[:0]], "1 image with keypoints"),
        ([one, one[:, :16]], "packed bits of one length"),
        ([one.astype(np.float32)] * 2, "use a binary model"),
        ([np.zeros((9, 32), np.uint8)] * 2, "all 18 descriptors are equal"),
    ]
    for wrong, message in cases:
        with pytest.raises(DoapError, match=message):
            train_vocabulary(wrong)
