"""The graph in onnxruntime against sums of integers in NumPy, layer by layer."""

from collections.abc import Sequence
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from onnxruntime import InferenceSession

from doap.networks.int8.graph import build_graph, widen_first_layer
from doap.networks.int8.layers import Layer, Sum
from doap.networks.int8.operands import Operands, sums_are_exact
from doap.networks.int8.quantization import Quantization, quantize_weights


def convolve(maps: NDArray[np.int64], weight: NDArray[np.int8], stride: int, padding: int) -> NDArray[np.int64]:
    """Sum the products of (N, C, H, W) integers one output pixel at a time."""
    padded = np.pad(maps, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    side, taps = maps.shape[2] // stride, weight.shape[2]
    sums = np.zeros((len(maps), len(weight), side, side), np.int64)
    for row in range(side):
        for column in range(side):
            window = padded[:, :, row * stride : row * stride + taps, column * stride : column * stride + taps]
            sums[:, :, row, column] = np.einsum("nchw,ochw->no", window, weight.astype(np.int64))
    return sums


def split_patches(patches: NDArray[np.float32], surroundings: int) -> NDArray[np.float32]:
    """Return the centre of each patch, then larger parts, each the mean of blocks of twice as many pixels."""
    parts = []
    for patch in patches[:, 0]:
        side = len(patch) >> surroundings
        for block in 2 ** np.arange(surroundings + 1):
            start, end = (len(patch) - side * block) // 2, (len(patch) + side * block) // 2
            parts.append(patch[start:end, start:end].reshape(side, block, side, block).mean((1, 3)))
    return np.stack(parts)[:, None]


def run_reference(
    layers: Sequence[Layer | Sum], ranges: Sequence[float], patches: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Compute the activations of (N, 1, S, S) patches with exact sums of integers."""
    quantization = Quantization.from_range(ranges[0], signed=True)
    axes = (1, 2, 3)
    normalised = (patches - patches.mean(axes, keepdims=True)) / np.sqrt(patches.var(axes, keepdims=True) + 1e-6)
    values = quantization.quantize(normalised)
    inputs: list[NDArray[np.float64]] = []
    for index, layer in enumerate(layers):
        inputs.append(quantization.dequantize(values).astype(np.float64))
        outputs = (
            inputs[index] + inputs[layer.first]
            if isinstance(layer, Sum)
            else compute_layer(layer, values, quantization)
        )
        if index == len(layers) - 1:
            return outputs
        quantization = Quantization.from_range(ranges[index + 1], signed=not layer.relu)
        values = quantization.quantize(outputs)
    raise AssertionError("no layer")


def compute_layer(layer: Layer, values: NDArray[np.uint8], quantization: Quantization) -> NDArray[np.float64]:
    """Compute the output of a layer of the quantised maps or rows `values`."""
    quantized = quantize_weights(layer.weight, layer.bias, quantization.scale)
    centred = values.astype(np.int64) - int(quantization.zero_point)
    if layer.is_convolution:
        sums = convolve(centred, quantized.weight, layer.stride, layer.padding) + quantized.bias.reshape(1, -1, 1, 1)
        scale = (quantized.scale * quantization.scale).reshape(1, -1, 1, 1)
    else:
        # Maps of the parts of a patch follow each other.
        rows = centred.transpose(0, 2, 3, 1).reshape(-1, layer.weight.shape[1]) if centred.ndim == 4 else centred
        sums, scale = rows @ quantized.weight.T.astype(np.int64) + quantized.bias, quantized.scale * quantization.scale
    outputs: NDArray[np.float64] = np.multiply(sums, scale, dtype=np.float64)
    return outputs


def _padding(stride: int, side: int) -> int:
    """Return the padding that divides the side of a map by the stride."""
    return (side - stride + 1) // 2


def sample(*shape: int) -> NDArray[np.float64]:
    scale = float(np.prod(shape[1:])) ** -0.5
    return np.random.default_rng(shape).normal(scale=scale, size=shape)


def random_layers(first_stride: int, first_side: int, parts: int = 1) -> list[Layer]:
    side = 16 // first_stride // 2
    return [
        Layer(sample(8, 1, first_side, first_side), sample(8), True, first_stride, _padding(first_stride, first_side)),
        Layer(sample(12, 8, 3, 3), sample(12), True, 2, 1),
        Layer(sample(6, parts * 12 * side * side), sample(6), False),
        Layer(sample(5, 6), sample(5), False),
    ]


@pytest.mark.parametrize("operands", get_args(Operands))
@pytest.mark.parametrize("surroundings", [0, 1, 2])
@pytest.mark.parametrize(("stride", "side"), [(1, 3), (2, 7), (2, 3), (1, 7), (4, 8)])
@pytest.mark.parametrize("ranges", [[3.0, 2.0, 1.5, 1.0], [0.5, 0.3, 0.2, 0.1]], ids=["fitting", "saturating"])
def test_sums_are_those_of_integers(
    operands: Operands, stride: int, side: int, ranges: list[float], surroundings: int
) -> None:
    if not sums_are_exact(operands):
        pytest.skip(f"onnxruntime saturates sums of {operands} on this CPU")
    check_graph(random_layers(stride, side, parts=surroundings + 1), ranges, operands, surroundings)


@pytest.mark.parametrize("operands", get_args(Operands))
@pytest.mark.parametrize("surroundings", [0, 1])
@pytest.mark.parametrize("scale", [1.0, 0.1], ids=["fitting", "saturating"])
def test_blocks_add_integers(operands: Operands, scale: float, surroundings: int) -> None:
    """Of three blocks, one of three layers; the sum of the last is read by a linear layer."""
    if not sums_are_exact(operands):
        pytest.skip(f"onnxruntime saturates sums of {operands} on this CPU")

    def conv(inputs: int, outputs: int, relu: bool = True, stride: int = 1) -> Layer:
        return Layer(sample(outputs, inputs, 3, 3), sample(outputs), relu, stride, 1)

    layers: list[Layer | Sum] = [
        conv(1, 8),
        *(conv(8, 8), conv(8, 8), conv(8, 8, relu=False), Sum(1)),
        conv(8, 12, stride=2),
        *(conv(12, 12), conv(12, 12, relu=False), Sum(6)),
        *(conv(12, 12), conv(12, 12, relu=False), Sum(9)),
        Layer(sample(6, (surroundings + 1) * 12 * 8 * 8), sample(6), False),
    ]
    ranges = [scale * (1 + 0.2 * index) for index in range(len(layers))]
    # One value that is rounded the other way changes all activations of its patch, one of nine.
    check_graph(layers, ranges, operands, surroundings, share=0.7)


def check_graph(
    layers: Sequence[Layer | Sum], ranges: Sequence[float], operands: Operands, surroundings: int, share: float = 0.9
) -> None:
    """Compare onnxruntime with the sums of integers; a `share` of the activations must be equal."""
    size = 16 << surroundings
    patches = np.random.default_rng(2).normal(size=(9, 1, size, size)).astype(np.float32)
    graph, block = build_graph(layers, ranges, size, operands, surroundings)
    session = InferenceSession(graph, providers=["CPUExecutionProvider"])
    activations = session.run(None, {"patches": patches.reshape(9, size, size // block, block)})[0]
    expected = run_reference(layers, ranges, split_patches(patches, surroundings))
    # onnxruntime scales the sums in float32: a value halfway between two integers may be rounded the other way.
    last = layers[-1]
    assert isinstance(last, Layer)
    step = ranges[-1] / 127 * np.abs(last.weight).max()
    assert np.abs(activations - expected).max() <= 2 * step
    assert np.mean(np.abs(activations - expected) < step / 100) > share


@pytest.mark.parametrize(("stride", "side"), [(1, 3), (2, 7), (2, 9), (1, 5), (4, 8)])
def test_the_first_layer_computes_blocks_of_pixels(stride: int, side: int) -> None:
    random = np.random.default_rng(3)
    weights = quantize_weights(random.normal(size=(3, 1, side, side)), random.normal(size=3), np.float32(1))
    padding = _padding(stride, side)
    widened, (left, right) = widen_first_layer(weights, stride, padding)
    block, taps = 4 * stride, widened.weight.shape[2:]
    assert np.count_nonzero(widened.weight) == 4 * np.count_nonzero(weights.weight)
    patches = random.integers(-128, 128, (2, 1, 32, 32))
    expected = convolve(patches, weights.weight, stride, padding)

    blocks = patches.reshape(2, 32, 32 // block, block)
    padded = np.pad(blocks, ((0, 0), (padding, padding), (left, right), (0, 0)))
    for row in range(32 // stride):
        for column in range(32 // block):
            window = padded[:, row * stride : row * stride + taps[0], column : column + taps[1]]
            sums = np.einsum("nhwc,ochw->no", window, widened.weight.astype(np.int64)).reshape(2, 4, 3)
            assert (sums.transpose(0, 2, 1) == expected[:, :, row, 4 * column : 4 * column + 4]).all()
