"""Images of a folder to a vocabulary on disk."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from doap.bridges.dbow.formats import check_format, check_target, suffix_of, write_vocabulary
from doap.bridges.dbow.training import check_images, check_size, grow_tree, weigh_words
from doap.bridges.dbow.vocabulary import Bits, Vocabulary
from doap.errors import DoapError
from doap.folders import DescribeSettings, DescribeSummary, FeatureCollection, describe_folder, find_images
from doap.types import StepProgress, no_step_progress

MAX_DESCRIPTORS = 4_000_000  # the tree is trained on; 32 bytes each. Weights are counted on all.


@dataclass(frozen=True)
class BuildSummary:
    """What `build_vocabulary` did.

    Attributes:
        vocabulary: The vocabulary that was written.
        images: Images with keypoints.
        descriptors: Number of descriptors that the tree was trained on.
        features: Where the features of the images are stored.
        described: What was described.
    """

    vocabulary: Vocabulary
    images: list[Path]
    descriptors: int
    features: Path
    described: DescribeSummary


def build_vocabulary(
    images: str | Path | Iterable[str | Path],
    output: str | Path,
    settings: DescribeSettings | None = None,
    *,
    k: int = 10,
    levels: int = 6,
    features: str | Path | None = None,
    seed: int = 0,
    device: str = "cpu",
    workers: int | None = None,
    force: bool = False,
    progress: StepProgress = no_step_progress,
) -> BuildSummary:
    """Describe images, train a vocabulary on their descriptors and write it.

    After an interruption, the next call continues with the images that are not described yet.

    Args:
        images: Folder, image, or several of them; see `describe_folder`.
        output: Vocabulary to write; see `write_vocabulary` for the suffixes.
        settings: Model and detector; by default doap-256b with 1,000 keypoints per image.
        k: Largest number of children of a node.
        levels: Largest number of levels of the tree, L.
        features: Features of the images, written by `describe_folder`: .h5 file or folder; by default the folder
            NAME-features beside the output NAME.
        seed: Seed of the initial centres of the clusters.
        device: Device on which images are described.
        workers: Number of processes that describe.
        force: Replace the output, and features of other settings.
        progress: Called with the step and the numbers of finished and of all items.

    Raises:
        DoapError: If the model is not binary or does not fit the form of the output, the output exists, or fewer than
            two images have keypoints.

    Example:
        >>> from doap.bridges.dbow import build_vocabulary
        >>> summary = build_vocabulary("photos", "voc.txt", levels=4)  # doctest: +SKIP
    """
    settings = settings or DescribeSettings("doap-256b", max_keypoints=1000)
    paths = [Path(images)] if isinstance(images, str | Path) else [Path(image) for image in images]
    target = Path(output)
    check_size(k, levels)
    check_model(settings.model, target)
    check_target(target, force)
    store = default_features(target) if features is None else Path(features)
    described = describe_folder(
        paths,
        store,
        settings,
        device=device,
        workers=workers,
        force=force,
        progress=partial(progress, "describing"),
    )
    if not described.described + described.unchanged:
        raise DoapError(f"no image could be described, the first: {described.failures[0]}")
    collection = FeatureCollection(store)
    named = [image for image in find_images(paths) if image.name in collection.stamps]
    training = _sample(collection, [image.name for image in named], seed)
    filled = [image for image in named if image.name in training]
    check_images(list(training.values()))
    tree = grow_tree(np.concatenate(list(training.values())), k, levels, seed, partial(progress, "clustering"))
    vocabulary = weigh_words(
        tree,
        (collection[image.name].descriptors for image in filled),
        lambda done, _: progress("weighting", done, len(filled)),
    )
    write_vocabulary(vocabulary, target)
    count = sum(map(len, training.values()))
    return BuildSummary(vocabulary, [image.path for image in filled], count, store, described)


def default_features(output: Path) -> Path:
    """Return the folder in which the features of a vocabulary's images are stored."""
    return output.with_name(f"{output.name.removesuffix(suffix_of(output))}-features")


def check_model(model: str, output: Path) -> None:
    """Check that a vocabulary of a model can be written to the output, before anything is described.

    Raises:
        DoapError: If there is no such model, it is not binary or it does not fit the form of the output.
    """
    from doap.networks.registry import load

    descriptor = load(model, fast=False)
    if descriptor.kind != "binary":
        raise DoapError(f"{model}: a vocabulary needs binary descriptors; use a binary model such as doap-256b")
    check_format(output, descriptor.bytes)


def _sample(collection: FeatureCollection, names: list[str], seed: int) -> dict[str, Bits]:
    """Return the descriptors of the images that have some: all, or as many as fit, chosen at random per image."""
    random = np.random.default_rng(seed)
    share = -(-MAX_DESCRIPTORS // len(names))
    sampled = {}
    for name in names:
        descriptors = collection[name].descriptors
        chosen = np.sort(random.permutation(len(descriptors))[:share])
        if len(chosen):
            sampled[name] = descriptors[chosen]
    return sampled
