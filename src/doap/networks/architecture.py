"""Network architectures, as recipes and model cards name them."""

from collections.abc import Callable
from typing import Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

from doap.networks.centre_surround import CentreSurround, MeanCentreSurround
from doap.networks.hynet import HyNet
from doap.networks.l2net import L2Net, MeanL2Net
from doap.networks.network import PatchNetwork
from doap.networks.residual import Residual
from doap.networks.small.tiny import Tiny
from doap.networks.small.windows import Windows
from doap.networks.spatial_transformer import Padding, SpatialTransformer, TransformedNetwork

DEFAULT_DEPTH = 2


class Architecture(BaseModel):
    """Configuration of a network. The defaults are the paper's network."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    network: Literal["l2net", "l2net-mean", "cs-l2net", "cs-l2net-mean", "hynet", "residual", "tiny", "windows"] = (
        "l2net"
    )
    dimensions: int = Field(default=128, gt=0, le=65536, description="dimensions of the descriptor, or its bits")
    width: int = Field(
        default=32,
        gt=0,
        le=4096,
        description="channels of the first layer, 32 in the paper; of the last two of tiny, of both of windows",
    )
    depth: int = Field(
        default=DEFAULT_DEPTH, gt=0, le=64, description="residual blocks per resolution; network=residual only"
    )
    surround: int = Field(
        default=0,
        ge=0,
        le=2,
        description="larger extents that are read beside the centre, each twice the one before at half the resolution: "
        "1 reads 64x64 patches, 2 reads 128x128; l2net and residual only",
    )
    transformer: bool = Field(default=False, description="align patches with a Spatial Transformer first")
    transformer_bounded: bool = Field(
        default=True, description="bound the predicted transformation by a tanh; false in the paper"
    )
    transformer_padding: Padding = Field(
        default="replicate", description="beyond the patch: its border, repeated (replicate), or black (zeros)"
    )

    @model_validator(mode="after")
    def _check_architecture(self) -> Self:
        if self.network != "residual" and self.depth != DEFAULT_DEPTH:
            raise ValueError(f"depth={self.depth} needs network=residual, not {self.network}")
        if self.surround and self.network not in ("l2net", "residual"):
            raise ValueError(f"surround={self.surround} needs network=l2net or residual, not {self.network}")
        if self.surround and self.transformer:
            size = 32 << self.surround
            raise ValueError(
                f"surround={self.surround} reads {size}x{size} patches, but a transformer outputs 32x32: "
                "set surround to 0 or transformer to false"
            )
        if not self.transformer and not (self.transformer_bounded and self.transformer_padding == "replicate"):
            raise ValueError("transformer_bounded and transformer_padding need transformer=true")
        if self.network.startswith("cs-l2net") and self.transformer:
            raise ValueError(
                f"{self.network} reads 64x64 patches, but a transformer outputs 32x32: set transformer to false"
            )
        if self.network.startswith("cs-l2net") and self.dimensions % 2:
            raise ValueError(
                f"each tower of {self.network} outputs half of the dimensions, but {self.dimensions} is odd"
            )
        return self


# Those without further settings.
_NETWORKS: dict[str, Callable[[int, int, float], PatchNetwork]] = {
    "l2net-mean": MeanL2Net,
    "cs-l2net": CentreSurround,
    "cs-l2net-mean": MeanCentreSurround,
    "hynet": HyNet,
    "tiny": Tiny,
    "windows": Windows,
}


def build_network(architecture: Architecture, dropout: float = 0.0) -> PatchNetwork:
    """Return a new network, with weights sampled from torch's global random state."""
    dimensions, width = architecture.dimensions, architecture.width
    network: PatchNetwork
    if architecture.network == "residual":
        network = Residual(dimensions, width, dropout, architecture.depth, architecture.surround)
    elif architecture.network == "l2net":
        network = L2Net(dimensions, width, dropout, architecture.surround)
    else:
        network = _NETWORKS[architecture.network](dimensions, width, dropout)
    if not architecture.transformer:
        return network
    transformer = SpatialTransformer(
        max(1, width // 2),  # scales with the network: width 16 for the paper's width of 32
        architecture.transformer_padding,
        architecture.transformer_bounded,
    )
    return TransformedNetwork(transformer, network)


def shapes_of(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors of an architecture, without allocating them."""
    with torch.device("meta"):
        return {name: tuple(value.shape) for name, value in build_network(architecture).state_dict().items()}
