"""Which network: the few words that a recipe and a card say of it, and the network they stand for."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from doap.networks.l2net import L2Net
from doap.networks.network import PatchNetwork


class Architecture(BaseModel):
    """The paper's network by default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    network: Literal["l2net"] = "l2net"
    dimensions: int = Field(default=128, gt=0, le=65536, description="of the descriptor, or its bits")
    width: int = Field(default=32, gt=0, le=4096, description="channels of L2Net's first layer; the paper's has 32")


def build(architecture: Architecture, dropout: float = 0.0) -> PatchNetwork:
    """A new network, its weights drawn from torch's random state."""
    return L2Net(architecture.dimensions, architecture.width, dropout)
