"""ONNX graphs of a model: from patches, or from an image and frames, to descriptors."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, ValueInfoProto, checker, helper, load_from_string

from doap.bridges.onnx.cutter_nodes import add_cutter
from doap.bridges.onnx.network_graph import add_network, add_quantized_network
from doap.bridges.onnx.patch_nodes import add_descriptors, add_input
from doap.choices import ExportPrecision
from doap.networks.descriptor import Descriptor
from doap.networks.int8.graph_builder import GraphBuilder
from doap.networks.int8.operands import Operands
from doap.version import __version__

PRODUCER = "doap"
# One file for x86 with VNNI and ARM, where signed activations are no faster; and one that is exact on every CPU.
INT8_OPERANDS: dict[ExportPrecision, Operands] = {"int8": "u8s8", "int8-without-vnni": "u8u8"}


def build_onnx(
    model: Descriptor,
    extent: float | None,
    precision: ExportPrecision,
    ranges: Sequence[float],
    metadata: Mapping[str, str],
) -> bytes:
    """Build the ONNX model of a descriptor.

    Args:
        model: Model from `prepare`; for int8 as loaded with `fast=False`.
        extent: None for the graph from `patches`, (N, H, W) uint8, to `descriptors`. For the graph from `image`, (H, W)
            uint8, and `frames`, (N, 2, 3) float32: half the side of a patch in units of the frame's scale.
        precision: Arithmetic of the network.
        ranges: Activation ranges of its card, for int8.
        metadata: Properties of the model.

    Returns:
        Serialised model. N, H and W are dynamic. `descriptors` are (N, dimensions) float32 unit vectors or
        (N, bits / 8) uint8.

    Raises:
        DoapError: If the model has no int8 form.
    """
    graph = GraphBuilder()
    inputs, patches = _add_patches(graph, extent, model)
    if precision in INT8_OPERANDS:
        activations = add_quantized_network(graph, model, ranges, INT8_OPERANDS[precision], patches)
    else:
        activations = add_network(graph, model.network, patches)
    dimensions = model.network.dimensions
    add_descriptors(graph, activations, model.kind, dimensions, "descriptors")
    if model.kind == "binary":
        output = helper.make_tensor_value_info("descriptors", TensorProto.UINT8, ["N", dimensions // 8])
    else:
        output = helper.make_tensor_value_info("descriptors", TensorProto.FLOAT, ["N", dimensions])
    built = graph.build(model.name, inputs, [output])
    built.producer_name, built.producer_version = PRODUCER, __version__
    helper.set_model_props(built, dict(metadata))
    checker.check_model(built, full_check=True)
    content: bytes = built.SerializeToString()
    return content


def is_exported_onnx(path: Path) -> bool:
    """Return whether a file is an ONNX model that was written by doap."""
    try:
        model = load_from_string(path.read_bytes())
    except DecodeError:
        return False
    return bool(model.producer_name == PRODUCER)


def _add_patches(graph: GraphBuilder, extent: float | None, model: Descriptor) -> tuple[list[ValueInfoProto], str]:
    """Add the extraction or the conversion of patches; return the inputs of the graph and the name of the patches."""
    if extent is None:
        inputs = [helper.make_tensor_value_info("patches", TensorProto.UINT8, ["N", "H", "W"])]
        return inputs, add_input(graph, "patches", model.input_size, model.network.surroundings)
    inputs = [
        helper.make_tensor_value_info("image", TensorProto.UINT8, ["H", "W"]),
        helper.make_tensor_value_info("frames", TensorProto.FLOAT, ["N", 2, 3]),
    ]
    return inputs, add_cutter(graph, "image", "frames", model.input_size, extent)
