"""The types of 8-bit integers that a CPU multiplies fast and sums exactly."""

import platform
from functools import cache
from typing import Literal

import numpy as np
from onnx import helper
from onnxruntime import InferenceSession, SessionOptions

from doap.networks.int8.graph_builder import GraphBuilder

Operands = Literal["u8s8", "s8s8", "u8u8"]
"""Types of activations and weights, unsigned or signed: u8s8 for VNNI, s8s8 for SDOT, u8u8 is exact on every CPU."""
ARM = ("aarch64", "arm64")
CHANNELS, PATCHES = 64, 8


@cache
def choose_operands() -> Operands:
    """Return the types that this CPU multiplies fastest among those it sums exactly."""
    if platform.machine().lower() in ARM:
        return "s8s8"
    return "u8s8" if sums_are_exact("u8s8") else "u8u8"


def sums_are_exact(operands: Operands) -> bool:
    """Return whether onnxruntime sums products of the largest integers exactly on this CPU.

    x86 without VNNI multiplies u8s8 with an instruction that adds pairs of products in 16 bits, where they saturate.
    """
    unsigned, signed = np.uint8(255), np.int8(127)
    activation = signed if operands == "s8s8" else unsigned
    weight = unsigned if operands == "u8u8" else signed
    largest = CHANNELS * int(activation) * int(weight)
    graph = GraphBuilder()
    zero, weight_zero = type(activation)(0), np.zeros(1, type(weight))
    output = graph.add_node(
        "QLinearConv",
        [
            "activations",
            *(np.float32(1), zero),
            *(np.full((CHANNELS, CHANNELS, 1, 1), weight), np.ones(1, np.float32), weight_zero),
            *(np.float32(largest / 100), zero),
        ],
        domain="com.microsoft",
        channels_last=1,
        kernel_shape=[1, 1],
    )
    element_type = helper.np_dtype_to_tensor_dtype(np.dtype(type(activation)))
    shape = [PATCHES, 1, 1, CHANNELS]
    inputs = [helper.make_tensor_value_info("activations", element_type, shape)]
    model = graph.build("sums", inputs, [helper.make_tensor_value_info(output, element_type, shape)])
    options = SessionOptions()
    options.intra_op_num_threads = 1  # by default one per core, each bound to it, which containers may forbid
    session = InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    sums = session.run(None, {"activations": np.full(shape, activation)})[0]
    return bool((sums == 100).all())
