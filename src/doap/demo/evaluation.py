"""Third step of the demo: match unseen photos with warped copies, and compare with SIFT and shipped models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.choices import DEFAULT_DETECTOR
from doap.datasets.sets.patch_set import PatchSet
from doap.demo import photos
from doap.demo.training import untrained_descriptor
from doap.evaluation.harness.cache import DescriptorCache
from doap.evaluation.harness.methods import open_methods
from doap.evaluation.harness.result import Score
from doap.evaluation.image_pairs import warped
from doap.evaluation.image_pairs.scoring import ImagePair, score_all
from doap.features import FrameDescriber, ModelDescriber
from doap.images.extraction import extract_patches
from doap.networks.baselines.sift import Sift
from doap.networks.descriptor import Descriptor
from doap.training.recipes.recipe import Recipe
from doap.types import StepProgress, no_step_progress

KEYPOINTS = 600
COPIES = 5
SHIPPED = ("doap-128", "doap-256b")


@dataclass(frozen=True)
class RankedExamples:
    """Patches that a few queries rank first, before and after training.

    Attributes:
        queries: (Q, S, S) query patches of a test photo.
        lists: For "before" and "after": (Q, K, S, S) patches by rank, (Q, K) whether each is correct, and the rank of
            the first correct one of each query, from 1.
    """

    queries: NDArray[np.uint8]
    lists: dict[str, tuple[NDArray[np.uint8], NDArray[np.bool_], list[int]]]


@dataclass(frozen=True)
class Evaluation:
    """Scores on the test photos.

    Attributes:
        scores: Rows of `warped.score_warped`.
        bytes: Size of one descriptor, by name.
    """

    scores: list[Score]
    bytes: dict[str, int]

    @property
    def means(self) -> list[dict[str, str | int | float]]:
        """One row per descriptor, best mAP first; see `warped.mean_scores`."""
        return [{**row, "bytes": self.bytes[str(row["descriptor"])]} for row in warped.mean_scores(self.scores)]

    def __add__(self, other: "Evaluation") -> "Evaluation":
        return Evaluation(self.scores + other.scores, self.bytes | other.bytes)


def make_test_pairs() -> list[ImagePair]:
    """Pair each test photo with warped copies of itself."""
    return [
        pair
        for seed, (name, photo) in enumerate(photos.read_photos(photos.TEST))
        for pair in warped.make_pairs(name, photo, COPIES, KEYPOINTS, seed)
    ]


def evaluate_models(
    pairs: Sequence[ImagePair], models: Sequence[FrameDescriber], progress: StepProgress = no_step_progress
) -> Evaluation:
    """Evaluate descriptors on image pairs."""
    view = pairs[0].first
    sizes = {model.name: int(model.describe_frames(view.image, view.frames[:1]).nbytes) for model in models}
    return Evaluation(score_all(pairs, len(pairs), models, progress, warped.score_warped), sizes)


def evaluate_references(
    pairs: Sequence[ImagePair], recipes: Mapping[str, Recipe], patches: Path, shipped: Sequence[str], cache: Path
) -> Evaluation:
    """Evaluate everything that needs no training: SIFT, RootSIFT, untrained networks and shipped models.

    Args:
        pairs: Image pairs.
        recipes: Recipes of the untrained networks.
        patches: Path of the training set, for their batch normalisation.
        shipped: Names of shipped models, which describe in their inference mode.
        cache: Folder for descriptors.
    """
    data = PatchSet.open(patches)
    models: list[FrameDescriber] = [Sift(), Sift(root=True)]
    models += [ModelDescriber(untrained_descriptor(name, recipe, data)) for name, recipe in recipes.items()]
    if shipped:
        models += open_methods(shipped, cache=DescriptorCache(cache), detector=DEFAULT_DETECTOR)
    return evaluate_models(pairs, models)


def rank_examples(pair: ImagePair, models: dict[str, Descriptor], queries: int = 4, length: int = 10) -> RankedExamples:
    """Rank the patches of a copy for a few queries, sampled among those with a correspondence."""
    correspondences = warped.correspondence_matrix(pair)
    sample = np.random.default_rng(0).choice(np.flatnonzero(correspondences.any(1)), queries, replace=False)
    indices = np.sort(sample)
    model = next(iter(models.values()))
    candidates = extract_patches(pair.second.image, pair.second.frames, model.input_size, model.extent)
    lists = {}
    for name, descriptor in models.items():
        describer = ModelDescriber(descriptor)
        first = describer.describe_frames(pair.first.image, pair.first.frames[indices])
        second = describer.describe_frames(pair.second.image, pair.second.frames)
        order = np.argsort(-(first @ second.T), axis=1, kind="stable")
        correct = np.take_along_axis(correspondences[indices], order, axis=1)
        ranks = [int(rank) + 1 for rank in correct.argmax(1)]
        lists[name] = candidates[order[:, :length]], correct[:, :length], ranks
    patches = extract_patches(pair.first.image, pair.first.frames[indices], model.input_size, model.extent)
    return RankedExamples(patches, lists)
