"""The demo's study: patches from photos, two trainings by AP, matching on photos never seen."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from doap import networks
from doap.datasets.build.assembly import frame_set_from_photos
from doap.datasets.build.cutting import cut_patches
from doap.datasets.sets.patch_set import PatchSet
from doap.demo import photos
from doap.evaluation.harness.cache import DescriptorCache
from doap.evaluation.harness.methods import open_methods
from doap.evaluation.harness.result import Score
from doap.evaluation.image_pairs import warped
from doap.evaluation.image_pairs.scoring import ImagePair, score_all
from doap.features import Features, FrameDescriber, Matches, ModelDescriber, detect_and_describe, match
from doap.images.extraction import extract_patches
from doap.images.frames import detect_dog
from doap.images.reading import read_grey
from doap.networks import registry
from doap.networks.architecture import build_network
from doap.networks.baselines.sift import Sift
from doap.networks.card import Origin
from doap.networks.descriptor import Descriptor, to_input
from doap.training.log import Status
from doap.training.recipe import Recipe
from doap.training.run_folder import DataSpec
from doap.training.trainer import train
from doap.types import Grey

# A quarter of the paper's width, so that both trainings take minutes on two cores.
SHARED = Recipe(bin_power=1.5, width=8, lr=2.0, epochs=6, precision="fp32")
RECIPES = {
    "doap-demo-128": SHARED,
    "doap-demo-256b": SHARED.model_copy(update={"kind": "binary", "dimensions": 256}),
}
DATA = f"embedded in scikit-image and scikit-learn: {', '.join(path.name for path in photos.TRAINING)}"
POINTS = 1200
KEYPOINTS = 600
COPIES = 5


@dataclass(frozen=True)
class Progress:
    """How the study reports: a step begins, and it is so far; for a training with the loss."""

    begin: Callable[[str], None]
    so_far: Callable[[float, float], None]

    def training(self, status: Status) -> None:
        """What to call with news of a training."""
        self.so_far(status.done, status.loss)

    def counting(self, total: int) -> Callable[..., None]:
        """What to call after each of `total` pieces of work, with any arguments."""
        done = 0

        def count(*_: object) -> None:
            nonlocal done
            done += 1
            self.so_far(done / total, float("nan"))

        return count


@dataclass(frozen=True)
class Example:
    """A query patch of a held-out photo, and how the patches of its copy rank before and after training."""

    queries: NDArray[np.uint8]
    lists: dict[str, tuple[NDArray[np.uint8], NDArray[np.bool_], list[int]]]


@dataclass(frozen=True)
class Study:
    """Everything the page shows."""

    patches: PatchSet
    runs: dict[str, Path]
    shipped: list[str]
    scores: list[Score]
    bytes: dict[str, int]
    pairs: list[ImagePair]
    example: Example
    stereo: tuple[Grey, Grey]
    stereo_features: tuple[Features, Features]
    stereo_matches: Matches


def run_study(folder: Path, progress: Progress) -> Study:
    """Run the whole demo into a folder; what an earlier demo left there is replaced."""
    runs = {name: folder / name for name in RECIPES}
    for old in (folder / "patches", folder / "descriptors", *runs.values()):
        shutil.rmtree(old, ignore_errors=True)
    patches = _cut(folder / "patches", progress)
    untrained = {name: _untrained(name, recipe, patches) for name, recipe in RECIPES.items()}
    trained = {}
    for name, recipe in RECIPES.items():
        progress.begin(f"training {name} ({recipe.kind})")
        trained[name] = train(recipe, patches, runs[name], name, source=DataSpec(DATA), progress=progress.training)
    shipped = [name for name in registry.list_models() if name not in RECIPES]
    pairs, scores, sizes = _judge([*trained.values(), *untrained.values()], shipped, folder / "descriptors", progress)
    for name, descriptor in trained.items():
        path = runs[name] / "weights.safetensors"
        registry.save(descriptor, path, RECIPES[name].architecture, _origin(name, scores))
    real = next(iter(RECIPES))
    stereo = read_grey(photos.STEREO[0]), read_grey(photos.STEREO[1])
    default = registry.load(networks.DEFAULT_MODEL)
    features = detect_and_describe(stereo[0], default), detect_and_describe(stereo[1], default)
    before_after = {"before": untrained[real], "after": trained[real]}
    example = _rank(pairs[0], before_after)
    return Study(patches, runs, shipped, scores, sizes, pairs, example, stereo, features, match(*features))


def _cut(path: Path, progress: Progress) -> PatchSet:
    progress.begin("cutting patches from photos")
    count = progress.counting(len(photos.TRAINING))
    frames = frame_set_from_photos(photos.read(photos.TRAINING), lambda image: detect_dog(image, POINTS))
    cut_patches(frames, path, progress=count)
    return PatchSet.open(path)


def _untrained(name: str, recipe: Recipe, patches: PatchSet) -> Descriptor:
    """The network as training finds it, its batch normalisation set by one pass over training patches.

    Without that pass the activations of a new network are hardly normalised, and it would look worse than it is.
    """
    torch.manual_seed(recipe.seed)
    network = build_network(recipe.architecture)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    with torch.no_grad():
        sample = np.random.default_rng(recipe.seed).choice(len(patches), recipe.batch_size, replace=False)
        network(to_input(torch.from_numpy(patches.take(sample)), network.input_size))
    return Descriptor(network.eval(), recipe.kind, patches.extent, f"{name} untrained")


def _judge(
    models: list[Descriptor], shipped: list[str], kept: Path, progress: Progress
) -> tuple[list[ImagePair], list[Score], dict[str, int]]:
    """Match held-out photos with models, with shipped ones by name, and with SIFT; `kept` is for descriptors."""
    progress.begin("matching photos never trained on")
    pairs = [
        pair
        for number, (name, photo) in enumerate(photos.read(photos.HELD_OUT))
        for pair in warped.make_pairs(name, photo, COPIES, KEYPOINTS, seed=number)
    ]
    describers: list[FrameDescriber] = [ModelDescriber(model) for model in models]
    describers += [Sift(), Sift(root=True)]
    if shipped:  # of the paper's width: each photo is described once, and in the fastest mode
        describers += open_methods(shipped, cache=DescriptorCache(kept), detector=warped.DETECTOR)
    view = pairs[0].first
    sizes = {d.name: int(d.describe_frames(view.image, view.frames[:1]).nbytes) for d in describers}
    count = progress.counting(len(pairs) * len(describers))
    return pairs, score_all(pairs, len(pairs), describers, count, warped.score_warped), sizes


def _origin(name: str, scores: list[Score]) -> Origin:
    """What the card of a trained model says."""
    row = next(row for row in warped.mean_scores(scores) if row["descriptor"] == name)
    return Origin(
        licence="Apache-2.0",
        data=DATA,
        recipe=RECIPES[name].model_dump(),
        figures={f"doap demo, {key} %": round(float(row[key]), 1) for key in ("mAP", "correct neighbours")},
        notes={
            "command": "doap demo",
            "frames": "DoG",
            "limits": "a demonstration: a narrow network, trained for minutes on fifteen images",
        },
    )


def _rank(pair: ImagePair, models: dict[str, Descriptor], queries: int = 4, shown: int = 10) -> Example:
    """Rank the patches of a copy for a few queries, drawn at random among those that have a counterpart."""
    true = warped.correspondence_matrix(pair)
    answerable = np.flatnonzero(true.any(1))
    chosen = np.sort(np.random.default_rng(0).choice(answerable, queries, replace=False))
    model = next(iter(models.values()))
    candidates = extract_patches(pair.second.image, pair.second.frames, model.input_size, model.extent)
    lists = {}
    for name, descriptor in models.items():
        describer = ModelDescriber(descriptor)
        first = describer.describe_frames(pair.first.image, pair.first.frames[chosen])
        second = describer.describe_frames(pair.second.image, pair.second.frames)
        order = np.argsort(-(first @ second.T), axis=1, kind="stable")
        right = np.take_along_axis(true[chosen], order, axis=1)
        ranks = [int(rank) + 1 for rank in right.argmax(1)]
        lists[name] = candidates[order[:, :shown]], right[:, :shown], ranks
    queried = extract_patches(pair.first.image, pair.first.frames[chosen], model.input_size, model.extent)
    return Example(queried, lists)
