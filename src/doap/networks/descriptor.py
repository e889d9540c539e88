"""Descriptors of patches: a network whose activations become unit vectors or bits."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, Self, overload

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from doap.errors import DoapError
from doap.extents import best_extent
from doap.networks import split_name
from doap.networks.network import PatchNetwork
from doap.networks.pinned_batches import map_batches
from doap.types import Kind

# Batches whose feature maps fit into the caches of a CPU, for large and for small networks; one that fills a GPU.
CPU_BATCH, SMALL_CPU_BATCH, GPU_BATCH = 64, 512, 8192
SMALL_NETWORK = 200_000  # weights


class Descriptor(nn.Module):
    """A trained network and how to use it, as returned by `doap.load`.

    It is a module like kornia's descriptors and takes their place, with images of grey values in 0..255:
    `kornia.feature.LAFDescriptor(model, model.input_size)(255 * images, lafs)`. Its attribute `network` does not: the
    output of a network is raw activations.

    Args:
        network: Maps patches to activations.
        kind: "real" for unit vectors, "binary" for packed bits.
        extent: Half the side of the training patches, in units of the frame's scale.
        name: Name in tables and messages.
        extents: Best extent per detector, by the name of the detector.
        prefixes: Lengths of the prefixes that were trained as descriptors, in dimensions or bits.
    """

    def __init__(
        self,
        network: PatchNetwork,
        kind: Kind,
        extent: float,
        name: str,
        extents: Mapping[str, float] = MappingProxyType({}),
        prefixes: Sequence[int] = (),
    ) -> None:
        super().__init__()
        if kind == "binary" and network.dimensions % 8:
            raise ValueError(f"the bits of a binary descriptor must be a multiple of 8, not {network.dimensions}")
        self.network = network
        self.kind: Kind = kind
        self.extent = extent
        self.name = name
        self.extents = dict(extents)
        self.prefixes = tuple(prefixes)

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
        """Return the best extent for a detector of doap, or for "orb", "akaze", "brisk", "gftt" or "fast" of OpenCV."""
        return best_extent(self.extents, detector, self.extent)

    def extent_at(self, extent: float | None, detector: str) -> float:
        """Return the extent of patches in a comparison of models at one extent.

        Args:
            extent: The extent; for a network with surroundings, that of the centre, a half or a quarter of that of the
                patch. None is the best one for the detector.
            detector: Name of the detector.
        """
        if extent is None:
            return self.extent_for(detector)
        return extent * (1 << self.network.surroundings)

    def with_network(self, network: PatchNetwork) -> "Descriptor":
        """Return a model with another form of the network, the same in all else."""
        return Descriptor(network, self.kind, self.extent, self.name, self.extents, self.prefixes)

    def truncate(self, dimensions: int) -> "Descriptor":
        """Return the model of a prefix of the descriptor, that was trained as a descriptor.

        Its bits are the first bits of the whole descriptor, its vectors the first components, normalised again. It is
        an ordinary model of a network with a smaller last layer. `doap.load` truncates before it optimises.

        Args:
            dimensions: Length of the prefix, one of `prefixes`; the length of the whole returns the model itself.

        Raises:
            DoapError: If the length was not trained, or the model is in a form for inference.

        Example:
            >>> import doap
            >>> from doap.networks.l2net import L2Net
            >>> model = doap.Descriptor(L2Net(128, width=8), "real", 12.0, "nested", prefixes=[32, 64])
            >>> short = model.truncate(64)
            >>> short.name, short.network.dimensions, short.prefixes
            ('nested@64', 64, (32,))
        """
        if dimensions == self.network.dimensions:
            return self
        check_prefix(self.name, dimensions, self.network.dimensions, self.prefixes)
        name = prefix_name(self.name, dimensions)
        prefixes = [prefix for prefix in self.prefixes if prefix < dimensions]
        network = self.network.truncate(dimensions)
        return Descriptor(network, self.kind, self.extent, name, self.extents, prefixes).train(self.training)

    def forward(self, patches: Tensor) -> Tensor:
        """Compute descriptors.

        Args:
            patches: (N, S, S) or (N, 1, S, S), of any size S; uint8 or any floating-point type, in both cases with grey
                values in 0..255. Values in 0..1, as of kornia's images, must be multiplied by 255 first: they are not
                recognised, and patches of low contrast would get other descriptors.

        Returns:
            For a real model, (N, dimensions) unit vectors: float32, or float64 after `model.double()`. For a binary
            model, (N, dimensions / 8) uint8 with the highest bit of a byte first, as in `numpy.packbits`.

        Raises:
            ValueError: If the patches have another shape or type.
        """
        activations: Tensor = self.network(to_input(patches, self.network))
        if self.kind == "binary":
            return pack_bits(activations > 0)
        return F.normalize(activations.to(torch.promote_types(activations.dtype, torch.float32)), dim=1)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Refuse a device that does not exist here, before any tensor is moved."""
        with _device_errors(f"device for {self.name}"):
            fn(torch.empty(0))
        applied: Self = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return applied


def prefix_name(name: str, dimensions: int) -> str:
    """Return the name of the model of a prefix; `doap.load` takes it as well.

    Example:
        >>> prefix_name("doap-128", 64), prefix_name("doap-128@64", 32)
        ('doap-128@64', 'doap-128@32')
    """
    return f"{split_name(name)[0]}@{dimensions}"


def check_prefix(name: str, dimensions: int, whole: int, prefixes: Sequence[int]) -> None:
    """Raise a `DoapError` unless a length, shorter than the whole, is one of the prefixes that were trained."""
    if dimensions not in prefixes:
        trained = ", ".join(map(str, [*prefixes, whole]))
        raise DoapError(f"{name}: not trained for {dimensions} dimensions or bits, only for {trained}")


def check_patches(patches: Tensor | NDArray[Any]) -> None:
    """Raise ValueError unless patches are an array or tensor, (N, S, S) or (N, 1, S, S), uint8 or floating-point."""
    if not (hasattr(patches, "shape") and hasattr(patches, "dtype")):
        raise ValueError(f"patches must be an array or a tensor, not {type(patches).__name__}")
    shape = tuple(patches.shape)
    if len(shape) not in (3, 4) or shape[-1] != shape[-2] or not shape[-1] or (len(shape) == 4 and shape[1] != 1):
        raise ValueError(f"patches must be (N, S, S) or (N, 1, S, S), not {shape}")
    if isinstance(patches, Tensor):
        is_grey = patches.dtype == torch.uint8 or patches.dtype.is_floating_point
    else:
        is_grey = patches.dtype == np.uint8 or np.issubdtype(patches.dtype, np.floating)
    if not is_grey:
        raise ValueError(f"patches must be uint8 or floating-point, not {patches.dtype}")


def to_input(patches: Tensor, network: PatchNetwork) -> Tensor:
    """Convert patches to the input of a network.

    Patches are resized. A network of three extents takes patches of less than 3/4 of its input size for patches without
    the outermost surroundings: they are resized to half of the input size and padded, see `pad_patches`.

    Args:
        patches: (N, S, S) or (N, 1, S, S), uint8 or floating-point.
        network: Network that reads them.

    Returns:
        (N, 1, size, size) float32, or float64 of float64 patches.
    """
    check_patches(patches)
    if network.surroundings > 1 and is_padded(patches.shape[-1], network.input_size):
        return pad_patches(resize_patches(patches, network.input_size // 2))
    return resize_patches(patches, network.input_size)


@overload
def is_padded(side: int, input_size: int) -> bool: ...


@overload
def is_padded(side: Tensor, input_size: int) -> Tensor: ...


def is_padded(side: int | Tensor, input_size: int) -> bool | Tensor:
    """Return whether patches are padded for a network of three extents, by their side and its input size."""
    return 4 * side < 3 * input_size


def resize_patches(patches: Tensor, size: int) -> Tensor:
    """Return (N, 1, size, size) float32 or float64 patches of (N, S, S) or (N, 1, S, S) uint8 or float patches."""
    values = patches.to(torch.float64 if patches.dtype == torch.float64 else torch.float32)
    if patches.ndim == 3:
        values = values[:, None]
    if patches.shape[-1] == size:
        return values
    return F.interpolate(values, (size, size), mode="bilinear", antialias=True)


def pad_patches(patches: Tensor) -> Tensor:
    """Return (N, 1, 2S, 2S) patches with (N, 1, S, S) patches in their middle, and the mean of each around it.

    `doap.datasets.batches.augmentation.hide_border` makes such patches for the training.
    """
    size = patches.shape[-1]
    padded = patches.mean((2, 3), keepdim=True).repeat(1, 1, 2 * size, 2 * size)
    inner = slice(size // 2, size // 2 + size)
    padded[:, :, inner, inner] = patches
    return padded


def pack_bits(bits: Tensor) -> Tensor:
    """Pack (N, b) bool into (N, b / 8) uint8, highest bit first."""
    # In int32, because ONNX cannot sum uint8. The number of rows is -1, because tracing would fix a number.
    bit_values = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.int32, device=bits.device)
    octets = bits.reshape(-1, bits.shape[1] // 8, 8).to(torch.int32)
    return (octets * bit_values).sum(2, dtype=torch.int32).to(torch.uint8)


def inference_batch_size(network: nn.Module, device: torch.device) -> int:
    """Return the number of patches per batch for fast inference with a network on a device."""
    if device.type != "cpu":
        return GPU_BATCH
    weights = sum(parameter.numel() for parameter in network.parameters())
    return SMALL_CPU_BATCH if weights < SMALL_NETWORK else CPU_BATCH


def check_device(device: str | torch.device | None) -> torch.device:
    """Return a device, the CPU for None; raise a `DoapError` if it does not exist here."""
    with _device_errors(f"device {device}"):
        resolved = torch.empty(0, device=device).device
    if resolved.type == "meta":
        raise DoapError(f"device {device}: has no values; use cpu, or cuda where there is a GPU")
    return resolved


@contextmanager
def _device_errors(name: str) -> Iterator[None]:
    """Raise torch's errors of a device that does not exist here as a `DoapError`."""
    try:
        yield
    except (RuntimeError, AssertionError, TypeError, ImportError) as error:
        reason = str(error).splitlines()[0].split(". ")[0]
        raise DoapError(f"{name}: not available here ({reason})") from error


def check_model(model: object) -> None:
    """Raise a `DoapError` if an object is no model of `doap.load`."""
    if not isinstance(model, Descriptor):
        raise DoapError(f"the model must be one that doap.load returns, not {type(model).__name__}")


def device_of(model: nn.Module) -> torch.device | None:
    """Return the device of a model; None for a handcrafted one, which has no tensors."""
    tensor = next(chain(model.parameters(), model.buffers()), None)
    return None if tensor is None else tensor.device


@overload
def describe_patches(patches: NDArray[Any], model: Descriptor) -> NDArray[Any]: ...


@overload
def describe_patches(patches: Tensor, model: Descriptor) -> Tensor: ...


def describe_patches(patches: NDArray[Any] | Tensor, model: Descriptor) -> NDArray[Any] | Tensor:
    """Compute the descriptors of patches in batches, so that memory stays bounded.

    Args:
        patches: (N, S, S) or (N, 1, S, S) grey patches of any size S, uint8 or floating-point with values in 0..255;
            an array, or a tensor on any device. They are resized to the input size of the model, see `to_input`.
        model: Model from `doap.load`, on any device.

    Returns:
        (N, dimensions) float32 unit vectors, or (N, bits / 8) uint8 for a binary model: an array for an array, a tensor
        on the model's device for a tensor.

    Example:
        >>> import doap, numpy as np
        >>> patches = np.random.default_rng(0).integers(0, 256, (5, 32, 32), dtype=np.uint8)
        >>> doap.describe_patches(patches, doap.load("doap-demo-128")).shape
        (5, 128)
        >>> doap.describe_patches(patches, doap.load("doap-demo-256b")).shape  # 256 bits in 32 bytes
        (5, 32)
    """
    check_model(model)
    check_patches(patches)
    if not len(patches):  # shape and type of the result depend on the model
        empty = describe_patches(np.zeros((1, 1, 1), np.uint8), model)[:0]
        return torch.from_numpy(empty).to(device_of(model)) if isinstance(patches, Tensor) else empty
    device = device_of(model) or torch.device("cpu")
    size = inference_batch_size(model.network, device)
    with _inference(model):
        if isinstance(patches, Tensor):
            return torch.cat([model(batch.to(device)) for batch in torch.split(patches, size)])
        read = partial(_read_rows, patches)
        if device.type == "cuda":
            return map_batches(model, read, len(patches), size, device).numpy()
        batches = (read(slice(start, start + size)) for start in range(0, len(patches), size))
        return np.concatenate([model(batch.to(device)).cpu().numpy() for batch in batches])


@contextmanager
def _inference(model: nn.Module) -> Iterator[None]:
    """Compute in evaluation mode and without gradients; afterwards each module is in its own mode again."""
    training = [module for module in model.modules() if module.training]
    if training:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def _read_rows(patches: NDArray[Any], rows: slice) -> Tensor:
    """Return some rows as a tensor, without a copy if possible."""
    # torch.from_numpy rejects negative strides and warns about read-only arrays: those are copied.
    return torch.from_numpy(np.require(patches[rows], requirements=["C", "W"]))
