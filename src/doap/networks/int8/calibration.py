"""Calibration: ranges of the inputs of layers, measured on patches."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.errors import DoapError
from doap.networks.descriptor import Descriptor, to_input
from doap.networks.int8.layers import layer_inputs
from doap.networks.int8.quantization import Quantization

MIN_PATCHES = 100
MAX_VALUES = 1_000_000  # values of one layer that take part, sampled regularly
CANDIDATES = np.linspace(0.2, 1.0, 81)  # fractions of the largest value
BATCH = 256


def calibrate(model: Descriptor, patches: NDArray[np.uint8]) -> list[float]:
    """Return the range of the input of each layer that gives the int8 form the smallest error.

    The range of a layer minimises the mean squared error of quantising its inputs: a larger one has larger steps, a
    smaller one clips more values.

    Args:
        model: Model loaded with `fast=False`, an L2Net, a Residual, a Tiny or a Windows.
        patches: (N, S, S) uint8 patches like those that will be described, of photos that are not tested on; a few
            thousand are enough.

    Returns:
        Largest magnitude per layer.

    Raises:
        DoapError: If there are fewer than 100 patches, or the model has no int8 form.
    """
    if len(patches) < MIN_PATCHES:
        raise DoapError(f"{model.name}: {len(patches)} patches are too few to calibrate; use at least {MIN_PATCHES}")
    samples: list[list[Tensor]] = []
    with torch.inference_mode():
        for batch in torch.split(torch.from_numpy(np.ascontiguousarray(patches)), BATCH):
            inputs = layer_inputs(model, to_input(batch, model.network))
            samples.append([sample_values(values, MAX_VALUES * len(batch) // len(patches)) for values in inputs])
    return [best_range(torch.cat(values).numpy()) for values in zip(*samples, strict=True)]


def best_range(values: NDArray[np.float32]) -> float:
    """Return the largest magnitude to represent in 8 bits that minimises the mean squared error of the values."""
    largest = float(np.abs(values).max())
    if largest == 0:
        return 1.0  # any range represents zeros
    signed = bool((values < 0).any())
    errors = []
    for candidate in CANDIDATES * largest:
        quantization = Quantization.from_range(float(candidate), signed)
        errors.append(np.square(quantization.dequantize(quantization.quantize(values)) - values).mean())
    return float(CANDIDATES[int(np.argmin(errors))] * largest)


def sample_values(values: Tensor, count: int) -> Tensor:
    """Return about `count` of the values, at regular steps, in memory of their own."""
    flat = values.flatten()
    step = max(1, len(flat) // max(1, count))
    return flat[:: step + 1 - step % 2].clone()  # an odd step visits all channels of a map
