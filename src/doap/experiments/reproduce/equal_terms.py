"""Equal terms for trainings on look-alike sets: the same number of steps for all, and a tuned learning rate for each.

The epochs of the paper's recipes are those of the official data sets. On small sets they would give methods that sample
pairs, whole groups or pairs of sequences very different numbers of steps.
"""

import math

from doap.training.batches import make_sampler
from doap.training.data_cache import Data
from doap.training.recipes.recipe import Recipe

STEPS = 3000
"""Default number of steps."""

LEARNING_RATES = {
    ("real", "ap"): 3.0,
    ("binary", "ap"): 3.0,
    ("real", "hardnet"): 3.0,
    ("real", "hardnet-gor"): 3.0,
    ("real", "triplet"): 3.0,
    ("real", "triplet-gor"): 3.0,
    ("real", "l2net"): 0.1,
}
"""Learning rate by kind and objective, each the best of the same values; docs/reproduction.md has the commands."""


def equal_terms(recipe: Recipe, data: Data, steps: int, lr: float | None = None) -> list[str]:
    """Return the overrides of a recipe: linear decay within a number of steps from the learning rate of its objective.

    An objective without a rate in `LEARNING_RATES`, which no target trains by itself, keeps that of the recipe.
    The prediction layer of a Spatial Transformer keeps the learning rate of the recipe: with a higher one, an unbounded
    transformation leaves the patch.

    Args:
        recipe: Recipe of a training, with its own learning rate.
        data: Its training set.
        steps: Number of steps; rounded up to whole epochs.
        lr: Learning rate instead of that of the objective.
    """
    batches = make_sampler(data, recipe).count(0)
    rate = LEARNING_RATES.get((recipe.kind, recipe.objective), recipe.lr) if lr is None else lr
    overrides = [f"epochs={math.ceil(steps / batches)}", "schedule=linear", f"lr={rate}"]
    if recipe.transformer:
        divisor = max(1.0, recipe.transformer_lr_divisor * rate / recipe.lr)
        overrides.append(f"transformer_lr_divisor={divisor:g}")
    return overrides
