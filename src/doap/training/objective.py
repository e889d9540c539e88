"""The losses of a recipe: its objective, AP or that of a baseline, and distillation."""

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
    ImitationLoss,
    L2NetLoss,
    NestedLoss,
    SimilarityLoss,
    SmoothAPLoss,
    SOSNetLoss,
    TripletLoss,
)
from doap.training.recipes.recipe import Recipe
from doap.types import Kind

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
    loss = _make_plain_objective(recipe, ranks)
    return NestedLoss(dict.fromkeys(recipe.lengths, loss)) if recipe.prefixes else loss


def make_distillation(recipe: Recipe, kind: Kind, dimensions: int | None) -> nn.Module:
    """Return the distillation loss, of raw activations of student and teacher.

    A student of the same kind and dimensions imitates the teacher's descriptors; any other its similarities. Prefixes
    of a student imitate the similarities of the teacher's whole descriptors.

    Args:
        recipe: Recipe of the student.
        kind: Kind of the teacher.
        dimensions: Of the teacher; None for an ensemble, which has similarities only.
    """
    similarity = SimilarityLoss(recipe.kind, kind)
    is_same = (recipe.kind, recipe.dimensions) == (kind, dimensions)
    whole = ImitationLoss(recipe.kind) if is_same else similarity
    if not recipe.prefixes:
        return whole
    return NestedLoss({**dict.fromkeys(recipe.prefixes, similarity), recipe.dimensions: whole})


def _make_plain_objective(recipe: Recipe, ranks: int) -> nn.Module:
    """Return the loss of the whole descriptor."""
    if recipe.objective == "ap":
        kind = AveragePrecisionLoss if ranks == 1 else DistributedAveragePrecisionLoss
        return kind(recipe.kind, recipe.bins, recipe.pooled_weight, recipe.matching_weight, recipe.bin_power)
    loss = BASELINES[recipe.objective]()
    return loss if ranks == 1 else GatheredLoss(loss)
