"""How long a training takes: the recipe, the number of keypoints and the number of epochs for a given time."""

import time
from dataclasses import dataclass

import torch

from doap.networks.architecture import build_network
from doap.training.objective import make_objective
from doap.training.recipes.recipe import Recipe
from doap.training.trainer import make_optimiser
from doap.types import Kind

VIEWS_PER_GROUP = 4
EPOCHS = 10
MIN_EPOCHS, MAX_EPOCHS = 4, 15
MIN_GROUPS, MAX_GROUPS = 512, 8000
MAX_KEYPOINTS = 1200  # per photo
MEASURED_STEPS = 4
STEPS_PER_VALIDATION = 6  # steps that take as long as a validation

# The recipes of `doap demo`: the tiny network, somewhat wider, and short lists.
_SHARED = Recipe(network="tiny", width=48, dropout=0, bin_power=1.5, batch_size=512, lr=6, precision="fp32")
RECIPES: dict[Kind, Recipe] = {
    "real": _SHARED,
    "binary": _SHARED.model_copy(update={"kind": "binary", "dimensions": 256}),
}
NAMES: dict[Kind, str] = {"real": "own-128", "binary": "own-256b"}


@dataclass(frozen=True)
class Plan:
    """What fits into the time of a training.

    Attributes:
        steps: Number of steps.
        groups_per_step: Points per batch.
    """

    steps: float
    groups_per_step: int

    def keypoints(self, photos: int) -> int:
        """Return the number of keypoints per training photo."""
        groups = min(max(self.steps / EPOCHS * self.groups_per_step, MIN_GROUPS), MAX_GROUPS)
        return min(MAX_KEYPOINTS, max(1, round(groups / max(photos, 1))))

    def epochs(self, groups: int) -> int:
        """Return the number of epochs over so many points."""
        steps_per_epoch = max(1, groups // self.groups_per_step) + STEPS_PER_VALIDATION
        return min(max(round(self.steps / steps_per_epoch), MIN_EPOCHS), MAX_EPOCHS)


def plan_training(recipe: Recipe, seconds: float) -> Plan:
    """Measure the time of a step on random patches, and plan a training of so many seconds."""
    return Plan(seconds / measure_step(recipe), recipe.batch_size // VIEWS_PER_GROUP)


def measure_step(recipe: Recipe) -> float:
    """Return the time of one training step in seconds."""
    network = build_network(recipe.architecture)
    objective, optimiser = make_objective(recipe), make_optimiser(network, recipe)
    patches = 255 * torch.rand(recipe.batch_size, 1, network.input_size, network.input_size)
    groups = torch.arange(recipe.batch_size) // VIEWS_PER_GROUP
    times = []
    for _ in range(MEASURED_STEPS):
        start = time.perf_counter()
        optimiser.zero_grad()
        objective(network(patches), groups, None).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        times.append(time.perf_counter() - start)
    return sum(times[1:]) / len(times[1:])  # the first one allocates memory
