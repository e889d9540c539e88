"""Descriptors of patches: a network whose activations become unit vectors or bits."""

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

# A batch that fits into the caches of a CPU, and one that keeps a GPU busy.
CPU_BATCH, GPU_BATCH = 128, 8192


class Descriptor(nn.Module):
    """A trained network and how to use it, as returned by `doap.load`.

    Args:
        network: Maps patches to activations.
        kind: "real" for unit vectors, "binary" for packed bits.
        extent: Half the side of the training patches, in units of the frame's scale.
        name: Name in tables and messages.
        extents: Best extent per detector, by the name of the detector.
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
            raise ValueError(f"the bits of a binary descriptor must be a multiple of 8, not {network.dimensions}")
        self.network = network
        self.kind: Kind = kind
        self.extent = extent
        self.name = name
        self.extents = dict(extents)

    @property
    def input_size(self) -> int:
        """Side in pixels of the patches the network reads."""
        return self.network.input_size

    @property
    def bytes(self) -> int:
        """Size of one descriptor in bytes; real ones are float32."""
        dimensions = self.network.dimensions
        return dimensions // 8 if self.kind == "binary" else 4 * dimensions

    def extent_for(self, detector: str) -> float:
        """Return the best extent for the frames of a detector, or the extent of the training if none was measured."""
        return self.extents.get(detector, self.extent)

    def forward(self, patches: Tensor) -> Tensor:
        """Compute descriptors.

        Args:
            patches: (N, S, S) uint8 or float with grey values in 0..255, of any size S.

        Returns:
            For a real model, (N, dimensions) float32 unit vectors. For a binary model, (N, dimensions / 8) uint8 with
            the highest bit of a byte first, as in `numpy.packbits`.
        """
        activations: Tensor = self.network(to_input(patches, self.input_size)).float()
        return F.normalize(activations, dim=1) if self.kind == "real" else pack_bits(activations > 0)


def to_input(patches: Tensor, size: int) -> Tensor:
    """Convert (N, S, S) uint8 or float patches to the input of a network, (N, 1, size, size) float32."""
    values = patches[:, None].float()
    if patches.shape[-1] == size:
        return values
    return F.interpolate(values, (size, size), mode="bilinear", antialias=True)


def pack_bits(bits: Tensor) -> Tensor:
    """Pack (N, b) bool into (N, b / 8) uint8, highest bit first."""
    bit_values = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device=bits.device)
    return (bits.view(len(bits), -1, 8) * bit_values).sum(2, dtype=torch.uint8)


def inference_batch_size(device: torch.device) -> int:
    """Return the number of patches per batch for fast inference on a device."""
    return CPU_BATCH if device.type == "cpu" else GPU_BATCH


def device_of(model: nn.Module) -> torch.device | None:
    """Return the device of a model; None for a handcrafted one, which has no tensors."""
    tensor = next(chain(model.parameters(), model.buffers()), None)
    return None if tensor is None else tensor.device


def describe_patches(patches: NDArray[np.uint8], model: Descriptor) -> NDArray[Any]:
    """Compute the descriptors of patches in batches, so that memory stays bounded.

    Args:
        patches: (N, S, S) uint8 grey patches of any size S; they are resized to the input size of the model.
        model: Model from `doap.load`; `doap.networks.inference.optimize_for_inference` returns a faster copy.

    Returns:
        (N, dimensions) float32 unit vectors, or (N, bits / 8) uint8 for a binary model.

    Example:
        >>> import doap, numpy as np
        >>> patches = np.random.default_rng(0).integers(0, 256, (5, 32, 32), dtype=np.uint8)
        >>> doap.describe_patches(patches, doap.load("doap-demo-128")).shape
        (5, 128)
        >>> doap.describe_patches(patches, doap.load("doap-demo-256b")).shape  # 256 bits in 32 bytes
        (5, 32)
    """
    if patches.ndim != 3 or patches.shape[1] != patches.shape[2] or patches.dtype != np.uint8:
        raise ValueError(f"patches must be (N, S, S) uint8, not {patches.shape} {patches.dtype}")
    if not len(patches):  # shape and type of the result depend on the model
        return describe_patches(np.zeros((1, 1, 1), np.uint8), model)[:0]
    device = device_of(model) or torch.device("cpu")
    size = inference_batch_size(device)
    model.eval()
    with torch.inference_mode():
        # torch.from_numpy rejects negative strides and warns about read-only arrays: those are copied.
        batches = (
            np.require(patches[start : start + size], requirements=["C", "W"]) for start in range(0, len(patches), size)
        )
        descriptors = [model(torch.from_numpy(batch).to(device)).cpu().numpy() for batch in batches]
    return np.concatenate(descriptors)
