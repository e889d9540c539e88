"""The graph of a quantised network for onnxruntime.

Activations are 8-bit, weights int8 with one scale per output channel, sums int32. Maps are in channels-last order, in
which onnxruntime multiplies with the dot-product instructions of the CPU. VNNI on x86 multiplies uint8 with int8, SDOT
on ARM int8 with int8: there all activations are stored minus 128. Other CPUs sum products of uint8 exactly: for them
all weights are stored plus 128. Neither changes a result.
"""

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from doap.networks.int8.graph_builder import GraphBuilder, Operand
from doap.networks.int8.layers import Layer, Sum
from doap.networks.int8.operands import Operands
from doap.networks.int8.quantization import Quantization, QuantizedWeights, quantize_weights

INPUT, OUTPUT = "patches", "activations"
PIXELS_PER_STEP = 4  # neighbouring output pixels of the first layer that are computed as one
NORMALISATION_EPSILON = 1e-6  # of `doap.networks.network.normalise`


def build_graph(
    layers: Sequence[Layer | Sum], ranges: Sequence[float], size: int, operands: Operands, surroundings: int = 0
) -> tuple[bytes, int]:
    """Build the int8 graph of a network.

    Args:
        layers: Convolutions and sums, then linear layers.
        ranges: Largest magnitude of the input of each layer.
        size: Side of the patches.
        operands: Types in which activations and weights are stored.
        surroundings: Number of larger extents that the first layer reads beside the centre, see `split_extents`.

    Returns:
        Serialised ONNX model that maps (N, size, size / b, b) float patches with grey values in 0..255 to (N,
        dimensions) float activations; and b, the pixels per block, from `block_size`.
    """
    quantizations = [
        Quantization.from_range(largest, signed=index == 0 or not layers[index - 1].relu)
        for index, largest in enumerate(ranges)
    ]
    graph = _Graph(operands)
    first, last = layers[0], layers[-1]
    assert not isinstance(first, Sum), "a sum is behind the layers of its block"
    assert not isinstance(last, Sum), "a linear layer comes last"
    block, layer_size = block_size(first), size >> surroundings
    shape = (layer_size, layer_size // block, block)
    values = _add_normalisation(graph, _add_split(graph, size, surroundings, shape) if surroundings else INPUT, shape)
    inputs = [graph.add_node("QuantizeLinear", [values, *graph.add_quantization(quantizations[0])])]
    for index, layer in enumerate(layers):
        values, input_, output = inputs[index], quantizations[index], (*quantizations[index + 1 :], None)[0]
        if _is_linear(layer):
            if not _is_linear(layers[index - 1]):
                values = graph.add_node("Reshape", [values, np.array([-1, layer.weight.shape[1]])])
            values = _add_linear(graph, values, layer, input_, output)
        else:
            assert output is not None, "a linear layer comes last"
            if isinstance(layer, Sum):
                values = _add_sum(graph, values, inputs[layer.first], input_, quantizations[layer.first], output)
            else:
                first_size = layer_size if index == 0 else None
                values = _add_convolution(graph, values, layer, input_, output, first_size)
        inputs.append(values)
    return graph.serialise(inputs[-1], (size, size // block, block), len(last.bias)), block


def block_size(first: Layer) -> int:
    """Return how many neighbouring pixels of a row the first layer reads as one pixel with that many channels."""
    return PIXELS_PER_STEP * first.stride


def widen_first_layer(
    quantized: QuantizedWeights, stride: int, padding: int
) -> tuple[QuantizedWeights, tuple[int, int]]:
    """Return the convolution that reads blocks of pixels and computes blocks of output pixels.

    A convolution of one channel uses a fraction of the width of a dot product. The same sums, of blocks of neighbouring
    pixels of a row as channels, with zeros for the pixels that do not take part, are several times faster.

    Args:
        quantized: Weights (C, 1, k, k) of a convolution.
        stride: Its stride.
        padding: Its padding.

    Returns:
        Weights (PIXELS_PER_STEP · C, block, k, blocks), and the blocks of padding on the left and on the right.
    """
    channels, _, side, _ = quantized.weight.shape
    block = PIXELS_PER_STEP * stride
    left, right = -(-padding // block), max(0, (block - stride - padding + side - 1) // block)
    weight = np.zeros((PIXELS_PER_STEP, channels, block, side, left + 1 + right), np.int8)
    for pixel in range(PIXELS_PER_STEP):
        for column in range(side):
            position = left * block + pixel * stride + column - padding
            weight[pixel, :, position % block, :, position // block] = quantized.weight[:, 0, :, column]
    widened = QuantizedWeights(
        weight.reshape(-1, *weight.shape[2:]),
        np.tile(quantized.scale, PIXELS_PER_STEP),
        np.tile(quantized.bias, PIXELS_PER_STEP),
    )
    return widened, (left, right)


class _Graph(GraphBuilder):
    """A graph with quantised values."""

    def __init__(self, operands: Operands) -> None:
        super().__init__()
        self.operands = operands

    def add_quantization(self, quantization: Quantization) -> list[Operand]:
        """Add a scale and a zero point; return their names."""
        zero_point: np.uint8 | np.int8 = quantization.zero_point
        if self.operands == "s8s8":
            zero_point = np.int8(int(zero_point) - 128)
        return [self.add_constant(quantization.scale), self.add_constant(zero_point)]

    def add_weights(self, quantized: QuantizedWeights) -> list[Operand]:
        """Add weights, their scales and zero points; return their names."""
        weight: NDArray[np.int8] | NDArray[np.uint8] = quantized.weight
        if self.operands == "u8u8":
            weight = (weight.astype(np.int16) + 128).astype(np.uint8)
        zero_points = np.full(len(quantized.scale), 128 if self.operands == "u8u8" else 0, weight.dtype)
        return [self.add_constant(array) for array in (weight, quantized.scale, zero_points)]

    def serialise(self, output: str, shape: tuple[int, int, int], dimensions: int) -> bytes:
        """Return the model whose output is the last node."""
        assert self.nodes[-1].output[0] == output
        self.nodes[-1].output[0] = OUTPUT
        inputs = [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["N", *shape])]
        outputs = [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["N", dimensions])]
        model: bytes = self.build("int8", inputs, outputs).SerializeToString()
        return model


def _add_split(graph: _Graph, size: int, surroundings: int, shape: tuple[int, int, int]) -> str:
    """Add the split of patches into centre and surroundings, as `doap.networks.network.split_extents`."""
    whole = graph.add_node("Reshape", [INPUT, np.array([-1, 1, size, size])])
    part_size, parts = shape[0], []
    for number in range(surroundings):
        margin = ((size >> number) - part_size) // 2
        start, end = np.array([margin] * 2), np.array([margin + part_size] * 2)
        parts.append(graph.add_node("Slice", [whole, start, end, np.array([2, 3])]))
        whole = graph.add_node("AveragePool", [whole], kernel_shape=[2, 2], strides=[2, 2])
    stacked = graph.add_node("Concat", [*parts, whole], axis=1)
    return graph.add_node("Reshape", [stacked, np.array([-1, *shape])])


def _add_normalisation(graph: _Graph, patches: str, shape: tuple[int, int, int]) -> str:
    """Add the normalisation of patches, as `doap.networks.network.normalise`.

    onnxruntime's LayerNormalization computes the variance as a difference of squares. This is inexact for patches that
    are bright and of low contrast, therefore the mean is subtracted before it.
    """
    mean = graph.add_node("ReduceMean", [patches, np.array([1, 2, 3])])
    centred = graph.add_node("Sub", [patches, mean])
    ones = graph.add_constant(np.ones(shape, np.float32))
    return graph.add_node("LayerNormalization", [centred, ones], axis=1, epsilon=NORMALISATION_EPSILON)


def _add_convolution(
    graph: _Graph,
    values: str,
    layer: Layer,
    input_: Quantization,
    output: Quantization,
    first_size: int | None,
) -> str:
    """Add a convolution; `first_size` is the side of the patches if it is the first, else None."""
    quantized = quantize_weights(layer.weight, layer.bias, input_.scale)
    padding, strides = layer.padding, [layer.stride, layer.stride]
    pads = [padding] * 4
    if first_size is not None:
        quantized, (left, right) = widen_first_layer(quantized, layer.stride, padding)
        pads, strides = [padding, left, padding, right], [layer.stride, 1]
    values = graph.add_node(
        "QLinearConv",
        [
            values,
            *graph.add_quantization(input_),
            *graph.add_weights(quantized),
            *graph.add_quantization(output),
            graph.add_constant(quantized.bias),
        ],
        domain="com.microsoft",
        channels_last=1,
        kernel_shape=list(quantized.weight.shape[2:]),
        strides=strides,
        pads=pads,
    )
    if first_size is None:
        return values
    side = first_size // layer.stride
    return graph.add_node("Reshape", [values, graph.add_constant(np.array([0, side, side, len(layer.bias)]))])


def _add_sum(
    graph: _Graph, branch: str, shortcut: str, branch_: Quantization, shortcut_: Quantization, output: Quantization
) -> str:
    """Add the sum of a residual block; the output has no negative integers, which is ReLU."""
    inputs = [branch, *graph.add_quantization(branch_), shortcut, *graph.add_quantization(shortcut_)]
    return graph.add_node("QLinearAdd", [*inputs, *graph.add_quantization(output)], domain="com.microsoft")


def _is_linear(layer: Layer | Sum) -> TypeGuard[Layer]:
    return isinstance(layer, Layer) and not layer.is_convolution


def _add_linear(graph: _Graph, values: str, layer: Layer, input_: Quantization, output: Quantization | None) -> str:
    """Add a linear layer; without a quantisation of its output it computes floats."""
    quantized = quantize_weights(layer.weight, layer.bias, input_.scale)
    transposed = QuantizedWeights(quantized.weight.T, quantized.scale, quantized.bias)
    inputs: list[Operand] = [
        values,
        *graph.add_quantization(input_),
        *graph.add_weights(transposed),
        graph.add_constant(quantized.bias),
    ]
    if output is not None:
        inputs += graph.add_quantization(output)
    return graph.add_node("QGemm", inputs, domain="com.microsoft")
