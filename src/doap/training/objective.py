"""The objective of a recipe: AP, or the objective of a baseline."""

from collections.abc import Callable

from torch import Tensor, nn

from doap.objectives import (
    AveragePrecisionLoss,
    DistributedAveragePrecisionLoss,
    FastAPLoss,
    GatheredLoss,
    GlobalOrthogonalLoss,
    HardNetLoss,
    HyNetLoss,
    L2NetLoss,
    SmoothAPLoss,
    SOSNetLoss,
    TripletLoss,
)
from doap.training.recipe import Recipe

BASELINES: dict[str, Callable[[], nn.Module]] = {
    "hardnet": HardNetLoss,
    "hardnet-gor": lambda: GlobalOrthogonalLoss(HardNetLoss()),
    "l2net": L2NetLoss,
    "sosnet": SOSNetLoss,
    "hynet": HyNetLoss,
    "fastap": FastAPLoss,
    "smooth-ap": SmoothAPLoss,
    "triplet": TripletLoss,
    "triplet-gor": GlobalOrthogonalLoss,
}

FEATURE_MAP_OBJECTIVES = ("l2net",)
"""Objectives that compare feature maps of the network as well."""

Loss = Callable[..., Tensor]
"""Loss of a batch: raw activations (m, d), their groups (m,), the pairs to ignore, and feature maps if the objective
compares them, to a scalar."""


def make_objective(recipe: Recipe, ranks: int = 1) -> Loss:
    """Return the loss of a batch; with several ranks, of the batch that all ranks hold together."""
    if recipe.objective == "ap":
        kind = AveragePrecisionLoss if ranks == 1 else DistributedAveragePrecisionLoss
        return kind(recipe.kind, recipe.bins, recipe.pooled_weight, recipe.matching_weight, recipe.bin_power)
    loss = BASELINES[recipe.objective]()
    return loss if ranks == 1 else GatheredLoss(loss)
