"""Nodes around a network: patches of any size to its input, and its activations to descriptors."""

import numpy as np
from onnx import TensorProto

from doap.networks.int8.graph_builder import GraphBuilder
from doap.types import Kind

MIN_LENGTH = np.float32(1e-12)  # of `torch.nn.functional.normalize`


def add_resize(graph: GraphBuilder, patches: str, size: int) -> str:
    """Add the resizing of uint8 patches, as `doap.networks.descriptor.to_input`.

    It is two products with matrices of triangle filters. The operator Resize is not used: runtimes differ in how they
    antialias. Patches that have the size already are multiplied by the identity.

    Args:
        graph: Graph to add to.
        patches: Name of (N, H, W) uint8 patches; H and W are known when the graph runs.
        size: Side of the resized patches.

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
        rest = [add("Gather", [shape, np.array([1])])] if axis == 2 else [np.array([size])]
        values = add("Reshape", [lines, add("Concat", [np.array([-1]), *rest, np.array([size])], axis=0)])
        values = add("Transpose", [values], perm=[0, 2, 1])
    return values


def _add_filters(graph: GraphBuilder, length: str, size: int) -> str:
    """Add the matrix, (length, size), whose columns average the pixels of a line to one pixel of the resized line."""
    add = graph.add_node
    ratio = add("Div", [add("Cast", [length], to=TensorProto.FLOAT), np.float32(size)])
    count = add("Squeeze", [length])
    pixels = add("Cast", [add("Range", [np.int64(0), count, np.int64(1)])], to=TensorProto.FLOAT)
    pixels = add("Unsqueeze", [add("Add", [pixels, np.float32(0.5)]), np.array([1])])
    centres = add("Mul", [np.arange(size, dtype=np.float32) + np.float32(0.5), ratio])
    distances = add("Div", [add("Abs", [add("Sub", [pixels, centres])]), add("Max", [ratio, np.float32(1)])])
    weights = add("Relu", [add("Sub", [np.float32(1), distances])])
    return add("Div", [weights, add("ReduceSum", [weights, np.array([0])], keepdims=1)])


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
