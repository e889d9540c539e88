"""Which network: the few words that a recipe and a card say of it, and the network they stand for."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from doap.networks.centre_surround import CentreSurround
from doap.networks.l2net import L2Net
from doap.networks.network import PatchNetwork
from doap.networks.spatial_transformer import SpatialTransformer, Transformed
from doap.networks.tiny import Tiny


class Architecture(BaseModel):
    """The paper's network by default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    network: Literal["l2net", "cs-l2net", "tiny"] = "l2net"
    dimensions: int = Field(default=128, gt=0, le=65536, description="of the descriptor, or its bits")
    width: int = Field(
        default=32, gt=0, le=4096, description="of L2Net's first layer, 32 in the paper; of tiny's second"
    )
    transformer: bool = Field(default=False, description="align patches by a Spatial Transformer first")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Refuse what does not go together."""
        if self.network == "cs-l2net" and self.transformer:
            raise ValueError("cs-l2net reads 64x64 patches and a transformer gives 32x32: set transformer to false")
        if self.network == "cs-l2net" and self.dimensions % 2:
            raise ValueError(f"the two towers of cs-l2net give half of the dimensions each: {self.dimensions} is odd")
        return self


def build(architecture: Architecture, dropout: float = 0.0) -> PatchNetwork:
    """A new network, its weights drawn from torch's random state."""
    dimensions, width = architecture.dimensions, architecture.width
    if architecture.network == "cs-l2net":
        return CentreSurround(dimensions, width, dropout)
    kind = Tiny if architecture.network == "tiny" else L2Net
    network = kind(dimensions, width, dropout)
    if not architecture.transformer:
        return network
    # As wide beside a narrow network as beside the paper's.
    return Transformed(SpatialTransformer(max(1, width // 2)), network)
