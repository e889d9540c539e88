"""The graph of a network, from patches of its input size to activations."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

import numpy as np
import torch
from onnx import ModelProto, NodeProto, load_from_string

from doap.bridges.onnx.torch_formats import MAX_DIMENSION, check_torch
from doap.networks.descriptor import Descriptor
from doap.networks.int8.graph_builder import OPSET, GraphBuilder
from doap.networks.int8.network import build_int8_graph
from doap.networks.int8.operands import Operands
from doap.networks.network import PatchNetwork


def add_network(graph: GraphBuilder, network: PatchNetwork, patches: str) -> str:
    """Add a network as torch exports it.

    Args:
        graph: Graph to add to.
        network: Network in float32 or float16, see `prepare`.
        patches: Name of (N, size, size) float32 patches.

    Returns:
        Name of (N, dimensions) activations.

    Raises:
        DoapError: If torch is too old.
    """
    inputs = graph.add_node("Unsqueeze", [patches, np.array([1])])
    return _add_model(graph, _export_network(network), inputs, centre=True)


def add_quantized_network(
    graph: GraphBuilder, model: Descriptor, ranges: Sequence[float], operands: Operands, patches: str
) -> str:
    """Add the int8 form of a network.

    Args:
        graph: Graph to add to.
        model: Model loaded with `fast=False`.
        ranges: Activation ranges of its card.
        operands: Types in which activations and weights are stored.
        patches: Name of (N, size, size) float32 patches.

    Returns:
        Name of (N, dimensions) float32 activations.

    Raises:
        DoapError: If the model has no int8 form.
    """
    content, block = build_int8_graph(model, ranges, operands)
    blocks = graph.add_node("Reshape", [patches, np.array([0, model.input_size, model.input_size // block, block])])
    return _add_model(graph, load_from_string(content), blocks, centre=False)


def _add_model(graph: GraphBuilder, model: ModelProto, values: str, centre: bool) -> str:
    """Add the nodes of a model with one input and one output; return the name of the output.

    Args:
        graph: Graph to add to.
        model: Model to add.
        values: Name of its input.
        centre: Whether to subtract the mean of each patch before LayerNormalization.
    """
    assert not model.functions, "the exporter inlines functions"
    renamed = {model.graph.input[0].name: values}

    def rename(name: str) -> str:
        return renamed.setdefault(name, f"network.{name}") if name else name

    for constant in model.graph.initializer:
        constant.name = rename(constant.name)
        graph.constants.append(constant)
    for node in model.graph.node:
        copied = NodeProto(op_type=node.op_type, domain=node.domain, attribute=node.attribute)
        copied.input.extend(map(rename, node.input))
        copied.output.extend(map(rename, node.output))
        if centre and node.op_type == "LayerNormalization":
            copied.input[0] = _add_centring(graph, copied.input[0])
        graph.nodes.append(copied)
    return rename(model.graph.output[0].name)


def _add_centring(graph: GraphBuilder, values: str) -> str:
    """Subtract the mean of each patch, which changes no result of LayerNormalization.

    onnxruntime computes the variance as a difference of squares: inexact for patches that are bright and of low
    contrast.
    """
    mean = graph.add_node("ReduceMean", [values, np.array([1, 2, 3])], keepdims=1)
    return graph.add_node("Sub", [values, mean])


def _export_network(network: PatchNetwork) -> ModelProto:
    import_module("onnxscript")  # which torch needs, but does not always say
    check_torch()
    example = torch.rand(3, 1, network.input_size, network.input_size) * 255
    with torch.no_grad(), _quiet():
        # Given a program, torch.onnx does not fall back to traces, in which the batch would be constant.
        count = torch.export.Dim("N", min=1, max=MAX_DIMENSION)
        program = torch.export.export(network, (example,), dynamic_shapes=({0: count},), strict=False)
        exported = torch.onnx.export(program, dynamo=True, opset_version=OPSET, verbose=False)
    assert exported is not None
    # Serialised by torch's copy of the format, which may not be the class of the installed onnx.
    return load_from_string(exported.model_proto.SerializeToString())


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter, which warns about missing libraries and its own use of deprecated functions."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
