"""The MatConvNet files of L2-Net's authors, `L2Net-LIB+.mat` and others (github.com/yuruntian/L2-Net, matlab/).

What `cal_L2Net_des.m` computes: subtract `pixMean` from a patch, subtract the mean of the result, divide by its
unbiased standard deviation plus 1e-12, and apply `net`. Its layers are, by the readers of the files in
github.com/virtualgraham/L2-Net-Python-Keras (src/build_py_params.py) and in the baselines of the Image Matching
Challenge:

- `conv`, with weights (K, K, C, C') and biases;
- `bnormPair`, with scales, shifts, and moments (C', 2). By the documentation of MatConvNet's `vl_nnbnorm`, moments are
  means and standard deviations, the latter with its epsilon, so that nothing is added to them. The authors' code runs
  these layers as `bnorm`, with their scales and shifts;
- `relu`, and a final `normalize`, which only scales the descriptor.

With centre and surround, `netCen` and `pixMeanCen` describe the central 32x32 pixels of a 64x64 patch, and `net` the
patch halved by `imresize`. The two outputs, each of unit length, are concatenated, the surround first; here the centre
is first, which changes no distance.

Not verified on the published files, which were not available: that `pixMean` is a 32x32 patch (a number is accepted as
well), and that its grey values are in 0..255 (a mean up to 1 is taken as 0..1).
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.errors import DoapError
from doap.networks.architecture import Architecture
from doap.networks.conversion.folding import ConvLayer, l2net_tensors
from doap.networks.conversion.layouts import Converted
from doap.networks.conversion.reading import read_matlab
from doap.networks.l2net import INPUT_SIZE

IGNORED = ("relu", "normalize", "dropout")


def convert_matlab(path: Path, centre_surround: bool) -> Converted:
    """Return our form of a file of L2-Net's authors, which holds the networks of the patch and of its centre.

    Args:
        path: The .mat file.
        centre_surround: Convert both, to CS-L2Net; else the first alone, to L2Net.

    Raises:
        DoapError: If the file cannot be read or its layers are not those of L2-Net.
    """
    names = ["net", "pixMean", *(["netCen", "pixMeanCen"] if centre_surround else [])]
    variables = read_matlab(path, names)
    try:
        surround, width = _read_tower(variables["net"], variables["pixMean"])
        dimensions = len(surround["layers.19.weight"])
        if not centre_surround:
            architecture = Architecture(network="l2net-mean", dimensions=dimensions, width=width)
            return Converted("L2-Net", architecture, surround)
        centre, _ = _read_tower(variables["netCen"], variables["pixMeanCen"])
        architecture = Architecture(network="cs-l2net-mean", dimensions=2 * dimensions, width=width)
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise DoapError(f"{path}: its layers are not those of L2-Net ({reason})") from error
    towers = {"centre": centre, "surround": surround}
    tensors = {f"{tower}.{name}": value for tower, values in towers.items() for name, value in values.items()}
    return Converted("CS-L2-Net", architecture, tensors)


def _read_tower(net: Any, mean: Any) -> tuple[dict[str, Tensor], int]:
    """Return the state dict of a `MeanL2Net`, and its width."""
    layers = _read_layers(net)
    return {**l2net_tensors(layers, unbiased=True), "mean": _read_mean(mean)}, len(layers[0].weight)


def _read_layers(net: Any) -> list[ConvLayer]:
    weights = [(str(layer.type), layer) for layer in np.atleast_1d(net.layers) if str(layer.type) not in IGNORED]
    types = [name.removesuffix("Pair") for name, _ in weights]
    if types != ["conv", "bnorm"] * 7:
        raise ValueError(f"its layers are {', '.join(types)[:80]}; expected seven of conv and bnorm")
    pairs = zip(weights[::2], weights[1::2], strict=True)
    return [_read_layer(convolution.weights, norm.weights) for (_, convolution), (_, norm) in pairs]


def _read_layer(convolution: Any, normalisation: Any) -> ConvLayer:
    filters = _as_array(convolution[0])
    if filters.ndim == 3:  # MATLAB's squeezed dimension of one input channel
        filters = filters[:, :, None]
    if filters.ndim != 4:
        raise ValueError(f"filters of shape {filters.shape}")
    channels = filters.shape[3]
    moments = _as_array(normalisation[2])
    if moments.shape != (channels, 2):
        raise ValueError(f"moments of shape {moments.shape} for {channels} channels")
    return ConvLayer(
        weight=torch.from_numpy(np.ascontiguousarray(filters.transpose(3, 2, 0, 1))),
        bias=_as_vector(convolution[1], channels),
        mean=torch.from_numpy(moments[:, 0].copy()),
        deviation=torch.from_numpy(moments[:, 1].copy()),
        scale=_as_vector(normalisation[0], channels),
        shift=_as_vector(normalisation[1], channels),
    )


def _read_mean(values: Any) -> Tensor:
    mean = _as_array(values)
    if mean.size not in (1, INPUT_SIZE**2):
        raise ValueError(f"pixMean of shape {mean.shape}")
    mean = np.broadcast_to(mean.reshape(() if mean.size == 1 else (INPUT_SIZE, INPUT_SIZE)), (INPUT_SIZE, INPUT_SIZE))
    scaled = mean * (255.0 if mean.mean() <= 1 else 1.0)
    return torch.from_numpy(scaled.copy())[None, None]


def _as_array(values: Any) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)


def _as_vector(values: Any, length: int) -> Tensor:
    return torch.from_numpy(_as_array(values).reshape(length).copy())
