"""Similar images of a collection, by aggregated descriptors.

The descriptors of an image are aggregated to one vector as in VLAD (Jégou et al., 2010): each is assigned to the
nearest word of a vocabulary learned from the collection itself, and the unit vectors from the words to their
descriptors are added up per word (Delhumeau et al., 2013). Signed square roots of the sums weaken repeated structures.
Bits are taken as values ±1.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.errors import DoapError, check_whole_number, inflect
from doap.folders.collection import FeatureCollection
from doap.folders.images import unique_names
from doap.folders.pairs import Pair
from doap.types import Descriptors, Progress, no_progress

Vectors = NDArray[np.float32]

WORDS = 64
DESCRIPTORS_PER_WORD = 256  # in training; more do not change the vocabulary much
MIN_DESCRIPTORS_PER_WORD = 39  # with fewer, the vocabulary is made smaller
ITERATIONS = 20


def retrieve_pairs(
    features: str | Path,
    count: int,
    *,
    names: Iterable[str] | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> list[Pair]:
    """Pair every image with the images most similar to it, by exact search over aggregated descriptors.

    Args:
        features: Features of a folder, as `describe_folder` writes them.
        count: Number of images that are retrieved for each image.
        names: Images to pair; None for all. Others of the collection have no influence.
        seed: Seed of the vocabulary.
        progress: Called with the numbers of finished and of all images.

    Returns:
        Pairs, each once and its names in sorted order. Images without keypoints are in none.

    Raises:
        DoapError: If fewer than two images have keypoints, descriptors differ in length, or the count is not positive.

    Example:
        >>> from doap.folders import match_pairs, retrieve_pairs
        >>> match_pairs("features.h5", retrieve_pairs("features.h5", 20), "matches.h5")  # doctest: +SKIP
    """
    import faiss

    check_whole_number("the number of images to retrieve", count)
    if count < 1:
        raise DoapError(f"the number of images to retrieve must be at least 1, not {count}")
    collection = FeatureCollection(features)
    chosen = collection.names if names is None else sorted(unique_names(names))
    words = learn_words(collection, WORDS, seed, chosen)
    described, rows = [], []
    for done, name in enumerate(chosen, 1):
        descriptors = as_vectors(collection[name].descriptors)
        if len(descriptors):
            _check_length(collection, name, descriptors, words.shape[1])
            described.append(name)
            rows.append(aggregate(descriptors, words))
        progress(done, len(chosen))
    if len(described) < 2:
        images = inflect(len(described), "image")
        raise DoapError(f"{features}: {len(described)} {images} with keypoints; retrieval needs at least two")
    vectors = np.stack(rows)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    _, nearest = index.search(vectors, min(count + 1, len(described)))
    pairs = set()
    for row, others in enumerate(nearest.tolist()):
        similar = [other for other in others if other != row][:count]
        pairs |= {(described[min(row, other)], described[max(row, other)]) for other in similar}
    return sorted(pairs)


def learn_words(collection: FeatureCollection, count: int, seed: int, names: Sequence[str] | None = None) -> Vectors:
    """Learn a vocabulary by k-means from descriptors sampled evenly over random images of a collection.

    Args:
        collection: Features.
        count: Number of words.
        seed: Seed of the sample and of k-means.
        names: Images to learn from; None for all.

    Returns:
        (W, D) words; fewer than `count` if there are few descriptors.

    Raises:
        DoapError: If no image has keypoints, or descriptors differ in length.
    """
    import faiss

    random = np.random.default_rng(seed)
    limit = count * DESCRIPTORS_PER_WORD
    order = random.permutation(collection.names if names is None else names)[:limit].tolist()
    share = -(-limit // max(1, len(order)))
    sampled: list[Vectors] = []
    for name in order:
        descriptors = collection[name].descriptors
        chosen = np.sort(random.permutation(len(descriptors))[:share])
        if len(chosen):
            sampled.append(as_vectors(descriptors[chosen]))
            _check_length(collection, name, sampled[-1], sampled[0].shape[1])
    if not sampled:
        raise DoapError(f"{collection.path}: no image has keypoints; retrieval needs at least two that do")
    training = np.concatenate(sampled)
    words = max(1, min(count, len(training) // MIN_DESCRIPTORS_PER_WORD))
    means = faiss.Kmeans(training.shape[1], words, niter=ITERATIONS, seed=seed, min_points_per_centroid=1)
    means.train(training)
    return np.asarray(means.centroids, np.float32)


def _check_length(collection: FeatureCollection, name: str, descriptors: Vectors, length: int) -> None:
    if descriptors.shape[1] != length:
        raise DoapError(
            f"{collection.path}: descriptors of {name} have {descriptors.shape[1]} dimensions, others {length}; "
            "describe all with one model"
        )


def aggregate(descriptors: Vectors, words: Vectors) -> Vectors:
    """Aggregate the (N, D) descriptors of an image to one unit vector of W x D values."""
    # The nearest word maximises w·d - |w|² / 2.
    nearest = (descriptors @ words.T - 0.5 * np.square(words).sum(1)).argmax(1)
    residuals = descriptors - words[nearest]
    residuals /= np.maximum(np.linalg.norm(residuals, axis=1, keepdims=True), 1e-12)
    assigned = (nearest[:, None] == np.arange(len(words))).astype(np.float32)
    sums = (assigned.T @ residuals).ravel()
    rooted = np.sign(sums) * np.sqrt(np.abs(sums))
    return np.asarray(rooted / max(float(np.linalg.norm(rooted)), 1e-12), np.float32)


def as_vectors(descriptors: Descriptors) -> Vectors:
    """Return real-valued descriptors as they are, and bits as values ±1."""
    if descriptors.dtype != np.uint8:
        return np.asarray(descriptors, np.float32)
    return np.unpackbits(descriptors, axis=1).astype(np.float32) * 2 - 1
