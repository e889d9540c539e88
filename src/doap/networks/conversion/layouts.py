"""Published checkpoints, recognised by the names and shapes of their tensors.

| layout | repository and file | differs from `L2Net` in |
|---|---|---|
| HardNet | github.com/DagnyT/hardnet, code/HardNet.py | unbiased standard deviation of a patch, plus 1e-7 |
| HardNet-PS | the same, pretrained/3rd_party/HardNetPS/README.md | biases, learned scales; no last normalisation |
| SOSNet | github.com/scape-research/SOSNet, sosnet_model.py | 1e-5 added to the variance of a patch |
| SOSNet or HardNet of HyNet's code | github.com/yuruntian/HyNet, model.py, class L2Net | the same |
| HyNet | github.com/yuruntian/HyNet, model.py, class HyNet | `doap.networks.hynet` |

HardNet's examples scale grey values to 0..1 and standardise them, which its own normalisation of each patch cancels.
HyNet's training (utils.py, train.py) reads grey values in 0..255, as this package does. The sources of SOSNet do not
say which range they use; its 1e-5 is below the quantisation of grey values in 0..255.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from pydantic import ValidationError
from torch import Tensor

from doap.networks.architecture import Architecture, shapes_of
from doap.networks.conversion.folding import ConvLayer, l2net_tensors
from doap.networks.network import EPS

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Converted:
    """Weights in the form of our networks.

    Args:
        layout: Name of the published network.
        architecture: Architecture of ours that computes the same.
        tensors: State dict of that architecture.
    """

    layout: str
    architecture: Architecture
    tensors: dict[str, Tensor]


@dataclass(frozen=True)
class L2NetLayout:
    """Names of the tensors of a network with the layers of L2Net.

    Args:
        name: Name of the published network.
        convolutions: Names of the seven convolutions.
        normalisations: Names of the batch normalisations after them; six if the last has none.
        unbiased: Whether it divides a patch by its unbiased standard deviation.
    """

    name: str
    convolutions: tuple[str, ...]
    normalisations: tuple[str, ...]
    unbiased: bool

    def convert(self, tensors: Tensors) -> Converted | None:
        """Return the equivalent L2Net; None if these are not the tensors of this layout."""
        architecture = self._match(tensors)
        if architecture is None:
            return None
        layers = [self._layer(tensors, number) for number in range(7)]
        return Converted(self.name, architecture, l2net_tensors(layers, self.unbiased))

    def _match(self, tensors: Tensors) -> Architecture | None:
        weights = [f"{name}.weight" for name in self.convolutions]
        statistics = [f"{name}.running_{kind}" for name in self.normalisations for kind in ("mean", "var")]
        learned = [f"{name}.{kind}" for name in self.normalisations for kind in ("weight", "bias")]
        biases = [f"{name}.bias" for name in self.convolutions]
        counters = {f"{name}.num_batches_tracked" for name in self.normalisations}
        names = set(tensors)
        if not {*weights, *statistics} <= names <= {*weights, *statistics, *learned, *biases, *counters}:
            return None
        shapes = [tuple(tensors[name].shape) for name in weights]
        architecture = _l2net_architecture(shapes)
        if architecture is None:
            return None
        channels = [shape[0] for shape in shapes]
        lengths = dict(zip(self.convolutions, channels, strict=True))
        lengths |= dict(zip(self.normalisations, channels[: len(self.normalisations)], strict=True))
        vectors = names - {*weights} - counters
        matches = all(tensors[name].shape == (lengths[name.rpartition(".")[0]],) for name in vectors)
        return architecture if matches else None

    def _layer(self, tensors: Tensors, number: int) -> ConvLayer:
        convolution = self.convolutions[number]
        weight = tensors[f"{convolution}.weight"].double()
        zeros, ones = weight.new_zeros(len(weight)), weight.new_ones(len(weight))
        layer = ConvLayer(weight, _get(tensors, f"{convolution}.bias", zeros), zeros, ones, ones, zeros)
        if number == len(self.normalisations):
            return layer
        normalisation = self.normalisations[number]
        return replace(
            layer,
            mean=tensors[f"{normalisation}.running_mean"].double(),
            deviation=(tensors[f"{normalisation}.running_var"].double() + EPS).sqrt(),
            scale=_get(tensors, f"{normalisation}.weight", ones),
            shift=_get(tensors, f"{normalisation}.bias", zeros),
        )


def _get(tensors: Tensors, name: str, default: Tensor) -> Tensor:
    return tensors[name].double() if name in tensors else default


def _l2net_architecture(shapes: list[tuple[int, ...]]) -> Architecture | None:
    """Return the architecture of the L2Net whose convolutions have these shapes; None if there is none."""
    try:
        architecture = Architecture(dimensions=shapes[-1][0], width=shapes[0][0])
    except (IndexError, ValidationError):  # no shape at all, or a length of 0
        return None
    expected = [shape for shape in shapes_of(architecture).values() if len(shape) == 4]
    return architecture if shapes == expected else None


def _convert_hynet(tensors: Tensors) -> Converted | None:
    """Return our HyNet of the tensors of HyNet's authors, which number the layers within each of seven blocks."""
    blocks = [f"layer{block}.{layer}" for block in range(1, 8) for layer in range(5 if block == 1 else 3)]
    numbers = {name: number for number, name in enumerate(blocks)}
    renamed = {}
    for name, value in tensors.items():
        layer, _, kind = name.rpartition(".")
        if layer not in numbers:
            return None
        renamed[f"layers.{numbers[layer]}.{kind}"] = value
    renamed.setdefault("layers.22.num_batches_tracked", torch.tensor(0))
    shapes = {name: tuple(value.shape) for name, value in renamed.items()}
    try:
        width, dimensions = shapes["layers.2.weight"][0], shapes["layers.21.weight"][0]
        architecture = Architecture(network="hynet", dimensions=dimensions, width=width)
    except (KeyError, IndexError, ValidationError):
        return None
    if shapes != shapes_of(architecture):
        return None
    return Converted("HyNet", architecture, renamed)


def _numbered(prefix: str, first: int, last: int) -> tuple[str, ...]:
    """Return the names of seven layers in a sequence: six in steps of three, and the last."""
    return tuple(f"{prefix}.{index}" for index in (*range(first, first + 18, 3), last))


L2NET_LAYOUTS = (
    L2NetLayout("HardNet", _numbered("features", 0, 19), _numbered("features", 1, 20), unbiased=True),
    L2NetLayout("HardNet-PS", _numbered("features", 0, 18), _numbered("features", 1, 19)[:6], unbiased=True),
    L2NetLayout("SOSNet", _numbered("layers", 1, 20), _numbered("layers", 2, 21), unbiased=False),
    L2NetLayout(
        "SOSNet or HardNet of HyNet's code",
        ("layer1.1", *(f"layer{block}.0" for block in range(2, 7)), "layer7.1"),
        ("layer1.2", *(f"layer{block}.1" for block in range(2, 7)), "layer7.2"),
        unbiased=False,
    ),
)


def convert_tensors(tensors: Tensors) -> Converted | None:
    """Return our form of a published state dict; None if its tensors are not those of a known network."""
    candidates = (convert(tensors) for convert in (*(layout.convert for layout in L2NET_LAYOUTS), _convert_hynet))
    return next((converted for converted in candidates if converted is not None), None)
