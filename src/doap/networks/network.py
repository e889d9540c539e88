"""Base classes and building blocks of all networks."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from doap.errors import DoapError
from doap.networks.layers.convolutions import PatchConvolution

EPS = nn.BatchNorm2d(1).eps
"""Added to variances by the batch normalisation of networks."""


class PatchNetwork(nn.Module):
    """Base class of networks.

    A network maps (N, 1, S, S) float patches with grey values in 0..255 to (N, dimensions) raw activations. These are
    no descriptors: the objective and `Descriptor` normalise or threshold them. `Descriptor` describes patches.

    Args:
        dimensions: Length of the output: dimensions of the descriptor, or its bits.
        input_size: S, side of the patches in pixels.

    Attributes:
        surroundings: Number of larger extents that the network reads beside the centre of a patch, see `split_extents`.
    """

    surroundings = 0

    def __init__(self, dimensions: int, input_size: int) -> None:
        super().__init__()
        self.dimensions = dimensions
        self.input_size = input_size

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the weights, to which a network casts patches after normalising them; float32 without weights."""
        return next((parameter.dtype for parameter in self.parameters()), torch.float32)

    def check(self, patches: Tensor) -> None:
        """Raise ValueError unless patches are (N, 1, S, S)."""
        size = self.input_size
        if patches.shape[1:] != (1, size, size):
            raise ValueError(f"{type(self).__name__} takes (N, 1, {size}, {size}), not {tuple(patches.shape)}")

    def forward_with_maps(self, patches: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Compute activations and the feature maps that L2-Net's loss compares.

        Args:
            patches: (N, 1, S, S) float, of any brightness and contrast.

        Returns:
            (N, dimensions) raw activations, and the maps after the first and the last batch normalisation, with N rows.
        """
        raise NotImplementedError(f"{type(self).__name__} does not batch normalise its first feature map")

    def truncate(self, dimensions: int) -> Self:
        """Return a copy that computes the first activations only: a network of fewer dimensions, with fewer weights.

        Args:
            dimensions: Number of activations to keep, at most those of the network.

        Raises:
            DoapError: If the activations are not those of one batch-normalised layer.
        """
        copy = deepcopy(self)
        copy._keep_outputs(dimensions)
        copy.dimensions = dimensions
        return copy

    def _keep_outputs(self, count: int) -> None:
        """Keep the first outputs of the last layer, in place; `layers` is where networks have theirs."""
        layers: Iterable[nn.Module] = getattr(self, "layers", ())
        *_, layer, normalisation = nn.Identity(), nn.Identity(), *layers
        is_normalised = isinstance(normalisation, nn.BatchNorm1d | nn.BatchNorm2d)
        if not is_normalised or not isinstance(layer, nn.Conv2d | nn.Linear):
            raise DoapError(f"{type(self).__name__} cannot be truncated: its activations are not those of one layer")
        keep_rows(layer, count)
        keep_rows(normalisation, count)


class LayeredNetwork(PatchNetwork):
    """Base class of networks that are a sequence of layers on normalised patches. Subclasses set `layers`.

    Args:
        dimensions: Length of the output, see `PatchNetwork`.
        layer_size: Side of the patches that the first layer reads.
        surroundings: Number of larger extents beside that of the centre, each of which doubles the side of the patches,
            see `split_extents`.
    """

    layers: nn.Sequential

    def __init__(self, dimensions: int, layer_size: int, surroundings: int = 0) -> None:
        super().__init__(dimensions, layer_size << surroundings)
        self.surroundings = surroundings

    def forward(self, patches: Tensor) -> Tensor:
        """Compute activations.

        Args:
            patches: (N, 1, S, S) float, of any brightness and contrast.

        Returns:
            (N, dimensions) raw activations.
        """
        activations: Tensor = self.layers(self.first_input(patches))
        return activations.flatten(1)

    def forward_with_maps(self, patches: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Compute activations and two maps, see `PatchNetwork`; the last map holds the activations."""
        convolution, normalisation, *layers = self.layers
        first: Tensor = normalisation(convolution(self.first_input(patches)))
        values = first.clone()  # the ReLU that follows works in place
        for layer in layers:
            values = layer(values)
        return values.flatten(1), [first.reshape(len(patches), -1, *first.shape[2:]), values]

    def first_input(self, patches: Tensor) -> Tensor:
        """Return the input of the first layer: normalised patches, or their normalised centres and surroundings."""
        self.check(patches)
        return normalise(split_extents(patches, self.surroundings)).to(self.dtype)


class StackExtents(nn.Module):
    """Stack the maps of the parts of each patch vertically, that of the centre on top.

    In channels-last order, the result is a view of the same memory.

    Args:
        parts: Number of parts of a patch, P.
    """

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.parts = parts

    def forward(self, maps: Tensor) -> Tensor:
        """Return (N, C, P·H, W) maps of (P·N, C, H, W) maps."""
        return torch.unflatten(maps, 0, (-1, self.parts)).transpose(1, 2).flatten(2, 3)


def split_extents(patches: Tensor, surroundings: int) -> Tensor:
    """Return several extents of each patch: its centre, and larger parts around it at lower resolutions.

    Each part has twice the extent and half the resolution of the one before; the last is the whole patch. The layers of
    a network read all parts with the same weights, and its last layer the maps of all. CS-L2Net has separate weights
    for two parts and concatenates two descriptors instead.

    Args:
        patches: (N, 1, S · 2^n, S · 2^n) float.
        surroundings: Number of larger parts, n.

    Returns:
        ((n + 1) · N, 1, S, S): the centre of the first patch, its larger parts, the centre of the second, and so on.
    """
    if not surroundings:
        return patches
    whole, size, parts = patches, int(patches.shape[2]) >> surroundings, []
    for number in range(surroundings + 1):
        if number:
            whole = halve(whole)
        margin = (int(whole.shape[2]) - size) // 2
        parts.append(whole[:, :, margin : margin + size, margin : margin + size])
    return torch.stack(parts, 1).flatten(0, 1)


def halve(patches: Tensor) -> Tensor:
    """Average blocks of 2x2 pixels: (N, 1, S, S) of (N, 1, 2S, 2S)."""
    if is_traced() or patches.device.type != "cpu":
        return F.avg_pool2d(patches, 2)
    rows = patches[:, :, ::2] + patches[:, :, 1::2]  # four times as fast as torch's pooling
    return (rows[..., ::2] + rows[..., 1::2]) / 4


def as_rows(maps: Tensor) -> Tensor:
    """Flatten (N, C, H, W) to (N, H · W · C); maps in channels-last order are not copied."""
    return maps.permute(0, 2, 3, 1).flatten(1)


def is_traced() -> bool:
    """Return whether torch records what is computed, to compile, export or trace it."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]


def conv_layer(
    in_channels: int, out_channels: int, kernel_size: int, stride: int, padding: int | None = None
) -> list[nn.Module]:
    """Return a convolution without bias, batch normalisation without learned scale or shift, and ReLU.

    By default maps are padded by half the kernel, so that the size of the output is that of the input by the stride.
    """
    padding = kernel_size // 2 if padding is None else padding
    kind = PatchConvolution if (in_channels, kernel_size, stride, padding) == (1, 3, 1, 1) else nn.Conv2d
    return [
        kind(in_channels, out_channels, kernel_size, stride=stride, padding=padding, bias=False),
        nn.BatchNorm2d(out_channels, affine=False),
        nn.ReLU(inplace=True),
    ]


def keep_rows(layer: nn.Module, count: int) -> None:
    """Keep the first outputs of a convolution, a linear layer or a batch normalisation, in place."""
    for name, parameter in layer.named_parameters():
        rows = parameter.detach()[:count].clone()
        setattr(layer, name, nn.Parameter(rows, requires_grad=parameter.requires_grad))
    for name, buffer in layer.named_buffers():
        if buffer.ndim:  # not the number of batches
            setattr(layer, name, buffer[:count].clone())
    for name in ("out_channels", "out_features", "num_features"):
        if hasattr(layer, name):
            setattr(layer, name, count)


def initialise(network: nn.Module) -> None:
    """Sample the weights of all convolutional and linear layers after He et al. (ICCV 2015), in place."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear) and not module.weight.is_meta:  # sampling imports a compiler there
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")


def load_weights(network: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy the tensors of a file to a network.

    Args:
        network: Network whose tensors have these names and shapes.
        tensors: Tensors by name.
        path: The file, for messages.

    Raises:
        DoapError: If a value is not finite in the type of the network, or the variance of a batch normalisation is
            not positive; the network would give no numbers.
    """
    network.load_state_dict(dict(tensors))
    for name, value in network.state_dict().items():
        if not value.sum(dtype=torch.float64).isfinite():  # sums of float32 do not overflow
            raise DoapError(f"{path}: its tensor {name} holds NaN or infinity; copy or download it again")
        if name.endswith("running_var") and not (value + EPS > 0).all():
            raise DoapError(f"{path}: its tensor {name} has variances of 0 or less; copy or download it again")


def normalise(patches: Tensor) -> Tensor:
    """Subtract the mean of each patch and divide by its standard deviation; a constant patch becomes 0.

    Args:
        patches: (N, 1, S, S) float, grey values in 0..255.

    Returns:
        (N, 1, S, S).
    """
    # sqrt(eps) is a thousandth of a grey level: well below the quantisation of patches, well above rounding errors.
    sides = [int(side) for side in patches.shape[1:]]  # the exporter to ONNX takes no traced sizes
    return F.layer_norm(patches, sides, eps=1e-6)
