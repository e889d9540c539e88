"""Share of retrieved pairs that match, for the retrieval of `doap match --retrieve` and simpler ones.

    doap describe photos/ -o features.h5
    doap match features.h5 --exhaustive -o matches.h5
    python benchmarks/retrieval.py features.h5 matches.h5

A pair matches if it has at least 30 verified matches. Recall is the number of matching images among the K retrieved per
image, divided by the number that could be among them. Mean pooling is the mean descriptor of an image; random is the
expectation of a random choice.
"""

import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from doap.folders import FeatureCollection, MatchCollection
from doap.folders.retrieval import WORDS, aggregate, as_vectors, learn_words

MIN_VERIFIED = 30
Array = NDArray[np.float32]


def matching(names: list[str], matches: MatchCollection) -> NDArray[np.bool_]:
    """Return which images match, (N, N)."""
    index = {name: number for number, name in enumerate(names)}
    result = np.zeros((len(names), len(names)), bool)
    for (first, second), count in matches.verified_counts().items():
        result[index[first], index[second]] = result[index[second], index[first]] = count >= MIN_VERIFIED
    return result


def ranking(collection: FeatureCollection, vector: Callable[[Array], Array]) -> NDArray[np.int64]:
    """Return for each image the others, most similar first."""
    vectors = np.stack([vector(as_vectors(collection[name].descriptors)) for name in collection.names])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    similarities = vectors @ vectors.T
    np.fill_diagonal(similarities, -np.inf)
    return np.argsort(-similarities, axis=1)[:, :-1]


def main() -> None:
    """Print precision and recall of every way."""
    collection = FeatureCollection(sys.argv[1])
    correct = matching(collection.names, MatchCollection(sys.argv[2]))
    words = learn_words(collection, WORDS, 0)
    rankings = {
        "aggregated": ranking(collection, lambda rows: aggregate(rows, words)),
        "mean pooling": ranking(collection, lambda rows: rows.mean(0)),
    }
    share = correct.sum() / (len(correct) * (len(correct) - 1))
    print(f"{len(correct)} images, random: {100 * share:.0f} % of the pairs match")
    for name, order in rankings.items():
        for count in (3, 5, 10):
            hits = np.take_along_axis(correct, order[:, :count], 1).sum()
            possible = np.minimum(correct.sum(1), count).sum()
            precision, recall = hits / (count * len(correct)), hits / possible
            print(f"{name}, K = {count}: {100 * precision:.0f} % of the pairs match, recall {100 * recall:.0f} %")


if __name__ == "__main__":
    main()
