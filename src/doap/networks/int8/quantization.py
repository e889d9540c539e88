"""Quantisation: from floats to 8-bit integers with a scale."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

MAX_BIAS = 2**30  # half of int32, so that the sum of products still fits


@dataclass(frozen=True)
class Quantization:
    """Mapping of floats to uint8: value = scale · (integer - zero point).

    Attributes:
        scale: Size of one step.
        zero_point: Integer of the value 0.
    """

    scale: np.float32
    zero_point: np.uint8

    @classmethod
    def from_range(cls, largest: float, signed: bool) -> Self:
        """Return the mapping that represents the values 0..largest, or -largest..largest if signed."""
        if signed:
            return cls(np.float32(largest / 127), np.uint8(128))
        return cls(np.float32(largest / 255), np.uint8(0))

    def quantize(self, values: NDArray[np.floating]) -> NDArray[np.uint8]:
        """Round values to integers; those out of range become the smallest or the largest integer."""
        integers = np.rint(values / self.scale) + np.float32(self.zero_point)
        clipped: NDArray[np.uint8] = np.clip(integers, 0, 255).astype(np.uint8)
        return clipped

    def dequantize(self, integers: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the values of integers."""
        return (integers.astype(np.float32) - np.float32(self.zero_point)) * self.scale


@dataclass(frozen=True)
class QuantizedWeights:
    """Weights of a layer in int8 with one scale per output channel, and its bias.

    Attributes:
        weight: int8 within -127..127, of the shape of the float weights; output channels come first.
        scale: (out channels,) float32.
        bias: (out channels,) int32 in units of the scale of the input times `scale`.
    """

    weight: NDArray[np.int8]
    scale: NDArray[np.float32]
    bias: NDArray[np.int32]


def quantize_weights(
    weight: NDArray[np.float64], bias: NDArray[np.float64], input_scale: np.float32
) -> QuantizedWeights:
    """Quantise the weights of a layer; the largest weight of each output channel becomes 127.

    Args:
        weight: (out channels, ...) weights.
        bias: (out channels,) bias.
        input_scale: Scale of the input of the layer.
    """
    largest = np.abs(weight).reshape(len(weight), -1).max(1)
    # A channel of small weights and a large bias gets a larger scale, so that its bias fits into int32.
    scale = np.maximum(largest / 127, np.abs(bias) / (float(input_scale) * MAX_BIAS))
    scale = np.maximum(scale, np.finfo(np.float32).tiny).astype(np.float32)
    integers = np.rint(weight / scale.astype(np.float64).reshape(-1, *[1] * (weight.ndim - 1)))
    steps = np.rint(bias / (scale.astype(np.float64) * float(input_scale)))
    return QuantizedWeights(np.clip(integers, -127, 127).astype(np.int8), scale, steps.astype(np.int32))
