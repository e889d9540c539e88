"""Spatial Transformer (Jaderberg et al., NIPS 2015) in front of a network: the -ST models of the paper, appendix B."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from doap.networks.network import PatchNetwork, conv_layer, initialise, normalise

INPUT_SIZE = 42
OUTPUT_SIZE = 32

# Maximum difference of a bounded transformation from the identity. Without bounds, training can shift the sampling grid
# off the patch, which leaves the network without content.
MATRIX_BOUND = 0.45  # per entry of the 2x2 matrix; below 1/2 the matrix is never singular and never mirrors
SHIFT_BOUND = 0.25  # in units of half the patch side

Padding = Literal["replicate", "zeros"]


class SpatialTransformer(nn.Module):
    """Alignment of patches: predict an affine transformation of each 42x42 patch and resample it to 32x32.

    Three convolutions read the normalised patch. Two of 5x5 and stride 2 are each followed by batch normalisation
    without learned scale or shift and ReLU. The third, the prediction layer, covers the whole 11x11 map and outputs six
    values, which are added to the identity: as they are in the paper, or bounded by a tanh.

    The prediction layer is initialised to zero, so training starts with the identity: the whole patch at 32x32.

    Args:
        width: Channels of the first layer; the second has twice as many. With 16, used for the paper's L2Net, it has
            36,438 parameters and needs 1.7 million multiplications per patch, 4.5 % of those of the network.
        padding: Values beyond the patch: "replicate" repeats its border, as in the paper; "zeros" is black, which
            leaves unwanted edges according to the paper.
        bounded: Whether a tanh, scaled to the bounds above, limits the transformation to rotations of up to 27 degrees,
            zooms of 0.55 to 1.45 and shifts of an eighth of the side.
    """

    bounds: Tensor

    def __init__(self, width: int = 16, padding: Padding = "replicate", bounded: bool = True) -> None:
        super().__init__()
        self.padding: Padding = padding
        self.bounded = bounded
        layers: list[nn.Module] = []
        for in_channels, out_channels in ((1, width), (width, 2 * width)):
            block = nn.Sequential(*conv_layer(in_channels, out_channels, 5, 2))
            initialise(block)
            layers += block
        self.layers = nn.Sequential(*layers)
        self.prediction = nn.Conv2d(2 * width, 6, math.ceil(INPUT_SIZE / 4))
        for parameter in self.prediction.parameters():
            nn.init.zeros_(parameter)
        bounds = torch.tensor([MATRIX_BOUND, MATRIX_BOUND, SHIFT_BOUND]).expand(2, 3).clone()
        self.register_buffer("bounds", bounds, persistent=False)

    def predict_transforms(self, patches: Tensor) -> Tensor:
        """Predict the transformation from coordinates of the aligned patch to coordinates of the patch.

        Coordinates are (x, y), with -1 and 1 at the edges of the patch.

        Args:
            patches: (N, 1, 42, 42) float, of any brightness and contrast.

        Returns:
            (N, 2, 3): a 2x2 matrix and a shift.
        """
        raw: Tensor = self.prediction(self.layers(normalise(patches).to(self.prediction.weight.dtype)))
        # Full precision from here on: bfloat16 would round coordinates to a tenth of a pixel.
        offsets = raw.to(patches.dtype).reshape(patches.shape[0], 2, 3)
        if self.bounded:
            offsets = self.bounds.to(offsets.dtype) * torch.tanh(offsets)
        return torch.eye(2, 3, dtype=offsets.dtype, device=offsets.device) + offsets

    def forward(self, patches: Tensor) -> Tensor:
        """Align (N, 1, 42, 42) patches to (N, 1, 32, 32)."""
        return resample(patches, self.predict_transforms(patches), self.padding)


class TransformedNetwork(PatchNetwork):
    """A network behind a Spatial Transformer.

    Args:
        transformer: Aligns 42x42 patches to 32x32.
        network: Network that reads the aligned patches.
    """

    def __init__(self, transformer: SpatialTransformer, network: PatchNetwork) -> None:
        super().__init__(network.dimensions, INPUT_SIZE)
        if network.input_size != OUTPUT_SIZE:
            raise ValueError(
                f"aligned patches are {OUTPUT_SIZE} pixels wide, but the network reads {network.input_size}"
            )
        self.transformer = transformer
        self.network = network

    def forward(self, patches: Tensor) -> Tensor:
        """Compute (N, dimensions) raw activations of (N, 1, 42, 42) patches."""
        self.check(patches)
        activations: Tensor = self.network(self.transformer(patches))
        return activations

    def forward_with_maps(self, patches: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Compute activations and the maps of the network behind the transformer, see `PatchNetwork`."""
        self.check(patches)
        return self.network.forward_with_maps(self.transformer(patches))

    def _keep_outputs(self, count: int) -> None:
        self.network = self.network.truncate(count)


def resample(patches: Tensor, transforms: Tensor, padding: Padding) -> Tensor:
    """Resample patches bilinearly by affine transformations.

    To repeat the border, coordinates are limited to the centres of the outermost pixels. This equals the border padding
    of `grid_sample`, which is missing on Apple's GPUs.

    Args:
        patches: (N, 1, 42, 42).
        transforms: (N, 2, 3), see `SpatialTransformer.predict_transforms`.
        padding: Values beyond the patch, see `SpatialTransformer`.

    Returns:
        (N, 1, 32, 32).
    """
    centres = torch.arange(1 - OUTPUT_SIZE, OUTPUT_SIZE, 2, dtype=transforms.dtype, device=transforms.device)
    centres = centres / OUTPUT_SIZE
    # Not a matrix product as in F.affine_grid: autocast and TF32 would round coordinates to fractions of a pixel.
    columns = transforms[:, None, None, :, 0] * centres[:, None]
    rows = transforms[:, None, None, :, 1] * centres[:, None, None]
    grid = columns + rows + transforms[:, None, None, :, 2]
    # With zeros, a limit beyond the patch keeps coordinates that overflow from becoming NaN.
    limit = 1 - 1 / INPUT_SIZE if padding == "replicate" else 2.0
    grid = grid.clamp(-limit, limit)
    return F.grid_sample(patches, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def prediction_parameters(network: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of the prediction layers in a network; they are trained with a lower learning rate."""
    transformers = (module for module in network.modules() if isinstance(module, SpatialTransformer))
    return [parameter for transformer in transformers for parameter in transformer.prediction.parameters()]
