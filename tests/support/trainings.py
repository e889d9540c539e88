"""Small trainings: sets, a recipe, and ways to stop and compare runs."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from doap import Descriptor, PatchSet, Recipe, load
from doap.training.log import Status

SMALL = Recipe(network="tiny", width=8, dimensions=16, batch_size=128, epochs=2, lr=1.0, dropout=0.1, precision="fp32")
"""A recipe of which two epochs take half a second; its network has batch normalisation and dropout, as all have."""

L2NET = {"network": "l2net", "width": 2}
"""Settings of the paper's network, narrow; three times as slow."""

VALIDATED = SMALL.model_copy(update={"val_fraction": 0.5, "epochs": 3, "ema_decay": 0.8})
"""The same with validation scenes and a moving average of the weights."""


def noisy_patches(points: int = 120, views: int = 3, sequences: int = 6) -> PatchSet:
    """Return several noisy views of random patches, in sequences of equally many points."""
    random = np.random.default_rng(0)
    pixels = random.normal(128, 40, (points, 1, 32, 32)) + random.normal(0, 15, (points, views, 32, 32))
    groups = np.arange(points).repeat(views)
    return PatchSet(
        [np.clip(pixels, 0, 255).astype(np.uint8).reshape(-1, 32, 32)], groups, groups * sequences // points
    )


def stop_after(fraction: float) -> Callable[[Status], None]:
    """Return a callback that stops a training, as Ctrl-C does, after a fraction of it."""

    def stop(status: Status) -> None:
        if not status.preparation and status.done > fraction:
            raise KeyboardInterrupt

    return stop


def weights_of(run: Path | Descriptor) -> dict[str, torch.Tensor]:
    """Return the weights of a model, or of a complete run folder."""
    model = load(run / "weights.safetensors", fast=False) if isinstance(run, Path) else run
    return model.network.state_dict()


def same_weights(first: Path | Descriptor, second: Path | Descriptor) -> bool:
    """Return whether two models have the same weights, bit for bit."""
    one, other = weights_of(first), weights_of(second)
    return list(one) == list(other) and all(torch.equal(value, other[name]) for name, value in one.items())


def same_files(first: Path, second: Path, *names: str) -> bool:
    """Return whether files of two folders have the same bytes."""
    return all((first / name).read_bytes() == (second / name).read_bytes() for name in names)
