"""The objective that a recipe names: AP, or that of a peer in its place."""

from collections.abc import Callable

from torch import Tensor, nn

from doap.objectives import (
    AveragePrecisionLoss,
    DistributedAveragePrecisionLoss,
    FastAPLoss,
    GlobalOrthogonalLoss,
    HardNetLoss,
    HyNetLoss,
    IgnoreTable,
    L2NetLoss,
    SmoothAPLoss,
    SOSNetLoss,
    TripletLoss,
    GatheredLoss,
)
from doap.training.recipe import Recipe

PEERS: dict[str, Callable[[], nn.Module]] = {
    "hardnet": HardNetLoss,
    "hardnet-gor": lambda: GlobalOrthogonalLoss(HardNetLoss()),
    "l2net": L2NetLoss,
    "sosnet": SOSNetLoss,
    "hynet": HyNetLoss,
    "fastap": FastAPLoss,
    "smooth-ap": SmoothAPLoss,
    "triplet": TripletLoss,
}

# The network's activations (m, d), their groups (m,), and what to ignore, to a scalar.
Loss = Callable[[Tensor, Tensor, IgnoreTable | None], Tensor]


def make_objective(recipe: Recipe, ranks: int = 1) -> Loss:
    """The loss of a list; with several ranks, of the list that all of them hold together."""
    if recipe.objective == "ap":
        kind = AveragePrecisionLoss if ranks == 1 else DistributedAveragePrecisionLoss
        return kind(recipe.kind, recipe.bins, recipe.pooled_weight, recipe.matching_weight, recipe.bin_power)
    peer = PEERS[recipe.objective]()
    return peer if ranks == 1 else GatheredLoss(peer)
