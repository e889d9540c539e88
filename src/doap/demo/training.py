"""Second step of the demo: cut patches from photos and train two descriptors by AP."""

from collections.abc import MutableMapping
from pathlib import Path

import numpy as np
import torch

from doap.datasets.build.assembly import frame_set_from_photos
from doap.datasets.build.cutting import cut_patches
from doap.datasets.sets.patch_set import PatchSet
from doap.demo import photos
from doap.images.frames import detect_dog
from doap.networks.architecture import build_network
from doap.networks.descriptor import Descriptor, to_input
from doap.training.log import Status
from doap.training.recipes.recipe import Recipe
from doap.training.run_folder import DataSpec
from doap.training.trainer import train
from doap.types import Progress, no_progress

# The tiny network, somewhat wider, and short lists: about a minute without a GPU. Bits take longer to learn.
_SHARED = Recipe(network="tiny", width=48, dropout=0, bin_power=1.5, batch_size=512, lr=6, epochs=4, precision="fp32")
RECIPES = {
    "doap-demo-128": _SHARED,
    "doap-demo-256b": _SHARED.model_copy(update={"kind": "binary", "dimensions": 256, "epochs": 8}),
}
DATA = f"embedded in scikit-image and scikit-learn: {', '.join(path.name for path in photos.TRAIN)}"
POINTS = 1200
EXTENT = 15.0


def cut_training_patches(path: Path, progress: Progress = no_progress) -> PatchSet:
    """Cut jittered patches around the strongest DoG frames of the training photos."""
    frames = frame_set_from_photos(photos.read_photos(photos.TRAIN), lambda image: detect_dog(image, POINTS), EXTENT)
    cut_patches(frames, path, progress=progress)
    return PatchSet.open(path)


def train_descriptor(
    name: str, recipe: Recipe, patches: Path, run: Path, losses: MutableMapping[str, tuple[float, float]]
) -> None:
    """Train a descriptor from scratch into a run folder.

    Args:
        name: Name of the model.
        recipe: Recipe of the model.
        patches: Path of the training set.
        run: Run folder.
        losses: Receives the finished fraction and the loss under the name.
    """

    def report(status: Status) -> None:
        if not status.preparation:  # whose end is not that of the training
            losses[name] = (status.done, status.loss)

    train(recipe, PatchSet.open(patches), run, name, source=DataSpec([DATA]), progress=report)


def untrained_descriptor(name: str, recipe: Recipe, patches: PatchSet) -> Descriptor:
    """Return the descriptor of a recipe before training.

    The statistics of its batch normalisation come from one batch of training patches; without them a new network
    would look worse than it is.
    """
    torch.manual_seed(recipe.seed)
    network = build_network(recipe.architecture)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
            module.momentum = 1.0
    with torch.no_grad():
        sample = np.random.default_rng(recipe.seed).choice(len(patches), recipe.batch_size, replace=False)
        network(to_input(torch.from_numpy(patches.take(sample)), network))
    return Descriptor(network.eval(), recipe.kind, patches.extent, f"{name} untrained")
