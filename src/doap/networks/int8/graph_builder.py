"""Construction of ONNX graphs, node by node."""

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

OPSET, MICROSOFT_OPSET, IR_VERSION = 18, 1, 8  # old enough for onnxruntime 1.18

Operand = str | NDArray[np.generic] | np.generic
"""Input of a node: name of a value, or a constant."""


class GraphBuilder:
    """Nodes and constants of a graph under construction."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def add_node(
        self, operator: str, inputs: list[Operand], domain: str = "", output: str = "", **attributes: object
    ) -> str:
        """Add a node; return the name of its output, which is made up if none is given."""
        names = [value if isinstance(value, str) else self.add_constant(value) for value in inputs]
        name = output or f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [name], domain=domain))
        self.nodes[-1].attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        return name

    def add_constant(self, value: NDArray[np.generic] | np.generic) -> str:
        """Add a constant; return its name."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value).reshape(np.shape(value)), name))
        return name

    def build(self, name: str, inputs: list[ValueInfoProto], outputs: list[ValueInfoProto]) -> ModelProto:
        """Return the model of all nodes."""
        graph = helper.make_graph(self.nodes, name, inputs, outputs, self.constants)
        domains = {node.domain for node in self.nodes}
        opsets = [helper.make_opsetid("", OPSET)]
        opsets += [helper.make_opsetid(domain, MICROSOFT_OPSET) for domain in sorted(domains - {""})]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
