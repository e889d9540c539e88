"""From patches to descriptors: a network with its reading of the activations, unit vectors or bits."""

from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from doap.networks.network import PatchNetwork
from doap.types import Kind

# Patches that a network sees at once: what stays in a CPU's caches, and what fills a GPU.
CPU_BATCH, GPU_BATCH = 128, 8192


class Descriptor(nn.Module):
    """A trained network and how to use it: what `doap.load` returns.

    Args:
        network: patches to activations.
        kind: "real" gives unit vectors, "binary" gives packed bits.
        extent: half the side of a patch, in units of its frame's scale, that the network was trained at.
        name: for tables and messages.
        extents: at which it is best for the frames of a detector, by the name of the detector.
    """

    def __init__(
        self,
        network: PatchNetwork,
        kind: Kind,
        extent: float,
        name: str,
        extents: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        if kind == "binary" and network.dimensions % 8:
            raise ValueError(f"a binary descriptor needs a multiple of 8 bits, not {network.dimensions}")
        self.network = network
        self.kind: Kind = kind
        self.extent = extent
        self.name = name
        self.extents = dict(extents)

    @property
    def input_size(self) -> int:
        """Side of the patches that the network reads."""
        return self.network.input_size

    @property
    def bytes(self) -> int:
        """Of one descriptor, real ones as float32."""
        dimensions = self.network.dimensions
        return dimensions // 8 if self.kind == "binary" else 4 * dimensions

    def extent_for(self, detector: str) -> float:
        """At which extent to cut patches around the frames of a detector; that of the training, if none is known."""
        return self.extents.get(detector, self.extent)

    def forward(self, patches: Tensor) -> Tensor:
        """Describe (N, S, S) patches, uint8 or float in 0..255, of any size S.

        Returns:
            real: (N, dimensions) float32 of length 1. binary: (N, dimensions / 8) uint8, the first bit
            of each byte its highest, as `numpy.packbits` and OpenCV's Hamming norm have it.
        """
        activations: Tensor = self.network(to_input(patches, self.input_size)).float()
        return F.normalize(activations, dim=1) if self.kind == "real" else pack_bits(activations > 0)


def to_input(patches: Tensor, size: int) -> Tensor:
    """(N, S, S) patches, uint8 or float, to what a network of this input size reads: (N, 1, size, size) float32."""
    values = patches[:, None].float()
    if patches.shape[-1] == size:
        return values
    return F.interpolate(values, (size, size), mode="bilinear", antialias=True)


def pack_bits(bits: Tensor) -> Tensor:
    """(N, b) bool to (N, b / 8) uint8, highest bit first."""
    places = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device=bits.device)
    return (bits.view(len(bits), -1, 8) * places).sum(2, dtype=torch.uint8)


def batch_size(device: torch.device) -> int:
    """How many patches a network on this device is best shown at once."""
    return CPU_BATCH if device.type == "cpu" else GPU_BATCH


def device_of(model: nn.Module) -> torch.device | None:
    """Where a model is; None for a handcrafted one, which may hold nothing."""
    held = next(chain(model.parameters(), model.buffers()), None)
    return None if held is None else held.device


def describe(patches: NDArray[np.uint8], model: Descriptor) -> NDArray[Any]:
    """Describe patches in batches of bounded memory.

    Args:
        patches: (N, S, S) uint8, grey, of any size S; they are resized to what the model reads.
        model: from `doap.load`; `doap.networks.fast.fastest` makes a faster one of it.

    Returns:
        (N, dimensions) float32 unit vectors, or (N, bits / 8) uint8 for a binary model.

    Example:
        >>> import doap, numpy as np
        >>> patches = np.random.default_rng(0).integers(0, 256, (5, 32, 32), dtype=np.uint8)
        >>> doap.describe(patches, doap.load("doap-demo-128")).shape
        (5, 128)
        >>> doap.describe(patches, doap.load("doap-demo-256b")).shape  # 256 bits in 32 bytes
        (5, 32)
    """
    if patches.ndim != 3 or patches.shape[1] != patches.shape[2] or patches.dtype != np.uint8:
        raise ValueError(f"patches must be (N, S, S) uint8, not {patches.shape} {patches.dtype}")
    if not len(patches):  # the shape and type of the result are still the model's
        return describe(np.zeros((1, 1, 1), np.uint8), model)[:0]
    device = device_of(model) or torch.device("cpu")
    size = batch_size(device)
    model.eval()
    with torch.inference_mode():
        # Torch takes neither what is flipped nor, without a warning, what cannot be written: these are copied.
        parts = (
            np.require(patches[start : start + size], requirements=["C", "W"]) for start in range(0, len(patches), size)
        )
        chunks = [model(torch.from_numpy(part).to(device)).cpu().numpy() for part in parts]
    return np.concatenate(chunks)
