"""Network that corrects a frame: affine shape, orientation and scale, from the patch around it.

A frame of shape A becomes A C with the correction C = s S R, in the coordinates of the frame:

    S = exp [[p, q], [q, -p]]     affine shape: symmetric, of determinant 1, axis ratio exp(2 √(p² + q²))
    R                             rotation by the angle of a vector (cosine, sine)
    s = exp z                     scale

Shape and scale are bounded, so that no correction is degenerate.
"""

import math
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from doap.geometry.rotations import rotation_matrices
from doap.networks.network import conv_layer, initialise, normalise

INPUT_SIZE = 32
OUTPUTS = 5  # p, q, z, cosine, sine

Start = Literal["detected", "baumberg"]
"""Frames that a network corrects: those of the detector, or these after Baumberg's iteration."""

Orientation = Literal["predicted", "peaks"]
"""Orientations of corrected frames: the predicted one, or one per peak of the gradients."""

Corrections = Literal["full", "shape"]
"""Corrections of a network: shape, orientation and scale; or shape alone, which AffNet corrects."""


class FrameSettings(BaseModel):
    """How to build and apply a network that corrects frames, as recorded on its card.

    Attributes:
        width: Channels of the first layers.
        corrections: "full", or "shape": without orientation and scale, and with the y axis kept, as in AffNet.
        start: "detected", or "baumberg": the frames are adapted to affine shape and oriented before the first pass.
        extent: Half the side of the input patch in units of the scale of a DoG frame.
        orientation: "predicted", one per keypoint; or "peaks", those of the gradients in the corrected frame.
        passes: How often frames are corrected, each time from the patch of the last correction.
        max_ratio: Largest axis ratio of the correction of one pass.
        max_scale: Largest factor, and divisor, of the scale in one pass.
        shape_power: Power of the predicted affine shape S that is applied after the training. Below 1 frames are less
            noisy, and differences of tilt remain to this extent; the training itself needs them to vanish.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    width: int = Field(default=16, ge=1, le=256)
    corrections: Corrections = "full"
    start: Start = "detected"
    extent: float = Field(default=8.0, gt=0, le=1000)
    orientation: Orientation = "peaks"
    passes: int = Field(default=1, ge=1, le=10)
    max_ratio: float = Field(default=6.0, gt=1, le=100)
    max_scale: float = Field(default=1.5, gt=1, le=10)
    shape_power: float = Field(default=1.0, gt=0, le=1)


class FrameNetwork(nn.Module):
    """Correction of frames: predict a 2x2 matrix from each 32x32 patch.

    Six convolutions of 3x3 with batch normalisation and ReLU, as in AffNet (Mishkin, Radenović and Matas, 2018), two of
    them with stride 2, and a prediction layer that covers the whole 8x8 map. The prediction layer is initialised to the
    identity. With 16 channels in the first layers, it has 92,053 parameters.

    Args:
        settings: Width and bounds.
    """

    def __init__(self, settings: FrameSettings | None = None) -> None:
        super().__init__()
        self.settings = settings or FrameSettings()
        width = self.settings.width
        plan = ((1, 1, 1), (1, 1, 2), (1, 2, 1), (2, 2, 2), (2, 4, 1), (4, 4, 1))
        layers: list[nn.Module] = []
        for number, (before, after, stride) in enumerate(plan):
            layers += conv_layer(width * before if number else 1, width * after, 3, stride)
        self.layers = nn.Sequential(*layers)
        initialise(self.layers)
        self.prediction = nn.Conv2d(4 * width, OUTPUTS, INPUT_SIZE // 4)
        nn.init.zeros_(self.prediction.weight)
        with torch.no_grad():
            self.prediction.bias.copy_(torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0]))  # type: ignore[union-attr]

    def forward(self, patches: Tensor) -> Tensor:
        """Predict the corrections.

        Args:
            patches: (N, 1, 32, 32) float, of any brightness and contrast.

        Returns:
            (N, 2, 2), finite and of positive determinant.
        """
        if patches.shape[1:] != (1, INPUT_SIZE, INPUT_SIZE):
            raise ValueError(f"FrameNetwork takes (N, 1, {INPUT_SIZE}, {INPUT_SIZE}), not {tuple(patches.shape)}")
        raw: Tensor = self.prediction(self.layers(normalise(patches).to(self.prediction.weight.dtype)))
        raw = raw.flatten(1).to(patches.dtype)
        power = 1.0 if self.training else self.settings.shape_power
        shape = symmetric_shapes(power * raw[:, :2], math.log(self.settings.max_ratio) / 2)
        if self.settings.corrections == "shape":
            return keep_vertical(shape)
        bound = math.log(self.settings.max_scale)
        scale = torch.exp(bound * torch.tanh(raw[:, 2] / bound))
        return scale[:, None, None] * (shape @ rotations(raw[:, 3:]))


def symmetric_shapes(values: Tensor, bound: float) -> Tensor:
    """Return exp [[p, q], [q, -p]] of (N, 2) values, whose length is bounded: (N, 2, 2) of determinant 1."""
    # The smallest float keeps the gradient of the length finite at 0, where the matrix is the identity.
    length = (values.square().sum(1) + torch.finfo(values.dtype).tiny ** 0.5).sqrt()
    bounded = bound * torch.tanh(length / bound)
    p, q = (values * (torch.sinh(bounded) / length)[:, None]).unbind(1)
    diagonal = torch.cosh(bounded)
    return torch.stack([torch.stack([diagonal + p, q], 1), torch.stack([q, diagonal - p], 1)], 1)


def rotations(vectors: Tensor) -> Tensor:
    """Return the rotations, (N, 2, 2), by the angles of (N, 2) vectors; none by the angle of a vector of length 0."""
    length = vectors.norm(dim=1, keepdim=True)
    upright = torch.tensor([1.0, 0.0], dtype=vectors.dtype, device=vectors.device)
    cosine, sine = torch.where(length > 1e-6, vectors / length.clamp(min=1e-6), upright).unbind(1)
    return rotation_matrices(cosine, sine)


def keep_vertical(shapes: Tensor) -> Tensor:
    """Rotate (N, 2, 2) shapes so that their y axis stays vertical: they become lower triangular."""
    (a, b), (c, d) = (row.unbind(1) for row in shapes.unbind(1))
    width = torch.hypot(a, b)
    zero = torch.zeros_like(width)
    return torch.stack([torch.stack([width, zero], 1), torch.stack([a * c + b * d, a * d - b * c], 1)], 1).div(
        torch.stack([torch.ones_like(width), width], 1)[:, :, None]
    )
