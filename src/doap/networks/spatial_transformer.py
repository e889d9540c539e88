"""The Spatial Transformer (Jaderberg et al., NIPS 2015) in front of a network: the paper's -ST models, appendix B."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from doap.networks.network import PatchNetwork, initialise, layer, normalise

INPUT_SIZE = 42
OUTPUT_SIZE = 32

# How far a transformation can go from the identity. Unbounded, the predicted shift runs off the patch in training, and
# the network is left with patches without content.
MATRIX_BOUND = 0.45  # of each entry of the 2x2 matrix; under 1/2 it is never singular and never mirrors
SHIFT_BOUND = 0.25  # in units of half the patch's side

# How many pixels beyond the patch the farthest sample of any bounded transformation reads.
_REACH = (1 + 2 * MATRIX_BOUND) * (1 - 1 / OUTPUT_SIZE) + SHIFT_BOUND  # from the middle, in half-sides
MARGIN = math.ceil((_REACH - 1) * INPUT_SIZE / 2 + 0.5)

Padding = Literal["replicate", "zeros"]


class SpatialTransformer(nn.Module):
    """Aligns patches: predicts an affine transformation of each and samples it, 42x42 pixels in, 32x32 out.

    Three convolutions see the normalised patch: two of 5x5 at stride 2, each followed by batch normalisation without
    learned scale or shift and ReLU, and the prediction layer, which sees the whole 11x11 map and gives six values.
    Their tanh, scaled to the bounds above, is added to the identity: turns of up to 27 degrees, zooms of 0.55 to 1.45,
    shifts of an eighth of the side.

    The prediction layer starts at zero, so the transformation starts as the identity: the whole patch, sampled at
    32x32.

    Args:
        width: channels of the first layer, and half those of the second. 16, for the paper's L2Net, makes 36,438
            parameters and 1.7 million multiplications a patch, 4.5 % of the network's own.
        padding: what is sampled beyond the patch: its border repeated, as in the paper, or black, which the paper
            found to leave unwanted edges.
    """

    bounds: Tensor

    def __init__(self, width: int = 16, padding: Padding = "replicate") -> None:
        super().__init__()
        self.padding: Padding = padding
        layers: list[nn.Module] = []
        for before, after in ((1, width), (width, 2 * width)):
            block = nn.Sequential(*layer(before, after, 5, 2))
            initialise(block)
            layers += block
        self.layers = nn.Sequential(*layers)
        self.prediction = nn.Conv2d(2 * width, 6, math.ceil(INPUT_SIZE / 4))
        for parameter in self.prediction.parameters():
            nn.init.zeros_(parameter)
        bounds = torch.tensor([MATRIX_BOUND, MATRIX_BOUND, SHIFT_BOUND]).expand(2, 3).clone()
        self.register_buffer("bounds", bounds, persistent=False)

    def transforms(self, patches: Tensor) -> Tensor:
        """From places in the aligned patch to places in the patch, both (x, y) with -1 and 1 at the patch's edges.

        Args:
            patches: (N, 1, 42, 42) float, of any brightness and contrast.

        Returns:
            (N, 2, 3): a 2x2 matrix and a shift.
        """
        raw = self.prediction(self.layers(normalise(patches)))
        # Half precision ends here: eight bits would round places to a tenth of a pixel.
        moved = torch.tanh(raw.to(patches.dtype)).reshape(patches.shape[0], 2, 3)
        return torch.eye(2, 3, dtype=moved.dtype, device=moved.device) + self.bounds * moved

    def forward(self, patches: Tensor) -> Tensor:
        """(N, 1, 42, 42) patches to (N, 1, 32, 32) aligned patches."""
        return sample(patches, self.transforms(patches), self.padding)


class Transformed(PatchNetwork):
    """A network that sees aligned patches.

    Args:
        transformer: 42x42 patches to aligned ones.
        network: describes the aligned patches.
    """

    def __init__(self, transformer: SpatialTransformer, network: PatchNetwork) -> None:
        super().__init__(network.dimensions, INPUT_SIZE)
        if network.input_size != OUTPUT_SIZE:
            raise ValueError(
                f"aligned patches have {OUTPUT_SIZE} pixels a side, but the network reads {network.input_size}"
            )
        self.transformer = transformer
        self.network = network

    def forward(self, patches: Tensor) -> Tensor:
        """(N, 1, 42, 42) patches to (N, dimensions) raw activations."""
        self.check(patches)
        activations: Tensor = self.network(self.transformer(patches))
        return activations


def sample(patches: Tensor, transforms: Tensor, padding: Padding) -> Tensor:
    """Sample patches where transformations within the bounds say, bilinearly.

    The border is repeated before sampling, so that sampling itself needs no border, which Apple's GPUs lack.

    Args:
        patches: (N, 1, 42, 42).
        transforms: (N, 2, 3), see `SpatialTransformer.transforms`.
        padding: what lies beyond the patch.

    Returns:
        (N, 1, 32, 32).
    """
    middles = torch.arange(1 - OUTPUT_SIZE, OUTPUT_SIZE, 2, dtype=transforms.dtype, device=transforms.device)
    middles = middles / OUTPUT_SIZE
    # Not a matrix product, as F.affine_grid has it: autocast and TF32 would round the places to fractions of a pixel.
    columns = transforms[:, None, None, :, 0] * middles[:, None]
    rows = transforms[:, None, None, :, 1] * middles[:, None, None]
    places = columns + rows + transforms[:, None, None, :, 2]
    if padding == "replicate":
        patches = F.pad(patches, (MARGIN, MARGIN, MARGIN, MARGIN), mode="replicate")
        places = places * (INPUT_SIZE / (INPUT_SIZE + 2 * MARGIN))
    return F.grid_sample(patches, places, mode="bilinear", padding_mode="zeros", align_corners=False)


def slow_parameters(network: nn.Module) -> list[nn.Parameter]:
    """The parameters of the prediction layers in a network, which learn more slowly than the rest."""
    found = (module for module in network.modules() if isinstance(module, SpatialTransformer))
    return [parameter for transformer in found for parameter in transformer.prediction.parameters()]
