"""Network architectures, as recipes and model cards name them."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from doap.networks.centre_surround import CentreSurround
from doap.networks.l2net import L2Net
from doap.networks.network import PatchNetwork
from doap.networks.spatial_transformer import SpatialTransformer, TransformedNetwork
from doap.networks.tiny import Tiny


class Architecture(BaseModel):
    """Configuration of a network. The defaults are the paper's network."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    network: Literal["l2net", "cs-l2net", "tiny"] = "l2net"
    dimensions: int = Field(default=128, gt=0, le=65536, description="dimensions of the descriptor, or its bits")
    width: int = Field(
        default=32,
        gt=0,
        le=4096,
        description="channels of L2Net's first layer, 32 in the paper; of tiny's second and third",
    )
    transformer: bool = Field(default=False, description="align patches with a Spatial Transformer first")

    @model_validator(mode="after")
    def _check_towers(self) -> Self:
        if self.network == "cs-l2net" and self.transformer:
            raise ValueError("cs-l2net reads 64x64 patches, but a transformer outputs 32x32: set transformer to false")
        if self.network == "cs-l2net" and self.dimensions % 2:
            raise ValueError(f"each tower of cs-l2net outputs half of the dimensions, but {self.dimensions} is odd")
        return self


def build_network(architecture: Architecture, dropout: float = 0.0) -> PatchNetwork:
    """Return a new network, with weights sampled from torch's global random state."""
    dimensions, width = architecture.dimensions, architecture.width
    if architecture.network == "cs-l2net":
        return CentreSurround(dimensions, width, dropout)
    network_class = Tiny if architecture.network == "tiny" else L2Net
    network = network_class(dimensions, width, dropout)
    if not architecture.transformer:
        return network
    # Scales with the network: width 16 for the paper's width of 32.
    return TransformedNetwork(SpatialTransformer(max(1, width // 2)), network)
