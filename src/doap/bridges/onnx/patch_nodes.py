"""Nodes around a network: patches of any size to its input, and its activations to descriptors."""

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from doap.networks.int8.graph_builder import GraphBuilder
from doap.types import Kind

MIN_LENGTH = np.float32(1e-12)  # of `torch.nn.functional.normalize`


def add_input(graph: GraphBuilder, patches: str, size: int, surroundings: int) -> str:
    """Add the conversion of patches to the input of a network, as `doap.networks.descriptor.to_input`.

    Args:
        graph: Graph to add to.
        patches: Name of (N, H, W) uint8 patches; H and W are known when the graph runs.
        size: Input size of the network.
        surroundings: Number of larger extents that it reads.

    Returns:
        Name of (N, size, size) float32 patches.
    """
    if surroundings < 2:
        return add_resize(graph, patches, np.array([size]))
    add = graph.add_node
    height = add("Gather", [add("Shape", [patches]), np.array([1])])
    is_small = add("Less", [add("Mul", [height, np.array([4])]), np.array([3 * size])])
    inner = add("Where", [is_small, np.array([size // 2]), np.array([size])])
    values = add_resize(graph, patches, inner)
    count = add("Cast", [add("Mul", [inner, inner])], to=TensorProto.FLOAT)
    means = add("Div", [add("ReduceSum", [values, np.array([1, 2])], keepdims=1), count])
    ones = add("Expand", [np.float32(1), add("Concat", [np.array([1]), inner, inner], axis=0)])
    margin = add("Div", [add("Sub", [np.array([size]), inner]), np.array([2])])
    margins = add("Concat", [np.array([0]), margin, margin, np.array([0]), margin, margin], axis=0)
    border = add("Sub", [np.float32(1), add("Pad", [ones, margins])])
    padded = add("Add", [add("Pad", [values, margins]), add("Mul", [means, border])])
    return add("Reshape", [padded, np.array([-1, size, size])])


def add_resize(graph: GraphBuilder, patches: str, size: str | NDArray[np.int64]) -> str:
    """Add the resizing of uint8 patches, as `doap.networks.descriptor.resize_patches`.

    It is two products with matrices of triangle filters. The operator Resize is not used: runtimes differ in how they
    antialias. Patches that have the size already are multiplied by the identity.

    Args:
        graph: Graph to add to.
        patches: Name of (N, H, W) uint8 patches; H and W are known when the graph runs.
        size: Side of the resized patches, (1,), or its name.

    Returns:
        Name of (N, size, size) float32 patches.
    """
    add = graph.add_node
    shape = add("Shape", [patches])
    values = add("Cast", [patches], to=TensorProto.FLOAT)
    for axis in (2, 1):  # columns, then rows
        length = add("Gather", [shape, np.array([axis])])
        # All lines of all patches as one matrix: onnxruntime rejects products of an empty batch of matrices.
        lines = add("Reshape", [values, add("Concat", [np.array([-1]), length], axis=0)])
        lines = add("MatMul", [lines, _add_filters(graph, length, size)])
        rest = add("Gather", [shape, np.array([1])]) if axis == 2 else size
        values = add("Reshape", [lines, add("Concat", [np.array([-1]), rest, size], axis=0)])
        values = add("Transpose", [values], perm=[0, 2, 1])
    return values


def _add_filters(graph: GraphBuilder, length: str, size: str | NDArray[np.int64]) -> str:
    """Add the matrix, (length, size), whose columns average the pixels of a line to one pixel of the resized line."""
    add = graph.add_node
    ratio = add("Div", [add("Cast", [length], to=TensorProto.FLOAT), add("Cast", [size], to=TensorProto.FLOAT)])
    pixels = add("Unsqueeze", [_add_centres(graph, length), np.array([1])])
    centres = add("Mul", [_add_centres(graph, size), ratio])
    distances = add("Div", [add("Abs", [add("Sub", [pixels, centres])]), add("Max", [ratio, np.float32(1)])])
    weights = add("Relu", [add("Sub", [np.float32(1), distances])])
    return add("Div", [weights, add("ReduceSum", [weights, np.array([0])], keepdims=1)])


def _add_centres(graph: GraphBuilder, count: str | NDArray[np.int64]) -> str:
    """Add the centres of the pixels of a line, (count,): 0.5, 1.5 and so on."""
    add = graph.add_node
    pixels = add("Range", [np.int64(0), add("Squeeze", [count]), np.int64(1)])
    return add("Add", [add("Cast", [pixels], to=TensorProto.FLOAT), np.float32(0.5)])


def add_descriptors(graph: GraphBuilder, activations: str, kind: Kind, dimensions: int, output: str) -> None:
    """Add unit vectors or packed bits, as `doap.networks.descriptor.Descriptor`.

    Args:
        graph: Graph to add to.
        activations: Name of (N, dimensions) activations of any floating-point type.
        kind: Kind of the descriptors.
        dimensions: Number of activations.
        output: Name of the descriptors.
    """
    add = graph.add_node
    activations = add("Cast", [activations], to=TensorProto.FLOAT)
    if kind == "real":
        lengths = add("ReduceL2", [activations, np.array([1])], keepdims=1)
        add("Div", [activations, add("Max", [lengths, MIN_LENGTH])], output=output)
        return
    bits = add("Cast", [add("Greater", [activations, np.float32(0)])], to=TensorProto.INT32)
    octets = add("Reshape", [bits, np.array([0, dimensions // 8, 8])])
    values = add("Mul", [octets, 1 << np.arange(7, -1, -1, dtype=np.int32)])
    packed = add("ReduceSum", [values, np.array([2])], keepdims=0)
    add("Cast", [packed], to=TensorProto.UINT8, output=output)
