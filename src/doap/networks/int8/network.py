"""A network in int8, run by onnxruntime on a CPU."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from doap.errors import DoapError
from doap.networks.descriptor import Descriptor
from doap.networks.int8.layers import read_layers
from doap.networks.network import PatchNetwork

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

    from doap.networks.int8.operands import Operands

# Sessions of the parent of a forked process: deleting one would wait for threads that do not exist.
_INHERITED: list["InferenceSession"] = []
BATCH = 128  # patches per run: maps stay in the caches, and onnxruntime keeps the memory of the largest run


def quantize(model: Descriptor, ranges: Sequence[float]) -> Descriptor:
    """Return the int8 form of a model; its descriptors can be matched with those of the model.

    Args:
        model: Model loaded with `fast=False`, an L2Net, a Residual, a Tiny or a Windows; not modified.
        ranges: Largest magnitude of the input of each layer, from `calibrate`.

    Raises:
        DoapError: If the model has no int8 form, or the ranges are not those of its layers.
    """
    graph, block = build_int8_graph(model, ranges)
    network = Int8Network(graph, model.network, block)
    return model.with_network(network).eval()


def build_int8_graph(
    model: Descriptor, ranges: Sequence[float], operands: "Operands | None" = None
) -> tuple[bytes, int]:
    """Build the int8 graph of a model, see `build_graph`.

    Args:
        model: Model loaded with `fast=False`, an L2Net, a Residual, a Tiny or a Windows.
        ranges: Largest magnitude of the input of each layer, from `calibrate`.
        operands: Types of activations and weights; by default those for this CPU, from `choose_operands`.

    Returns:
        The graph, and the pixels per block of its input.

    Raises:
        DoapError: If the model has no int8 form, or the ranges are not those of its layers.
    """
    layers = read_layers(model)
    if not ranges:
        raise DoapError(f"{model.name}: its card has no activation ranges; run: doap calibrate MODEL PHOTOS")
    try:
        from doap.networks.int8.graph import build_graph
        from doap.networks.int8.operands import choose_operands
    except ModuleNotFoundError as error:
        raise DoapError(f"{error.name} is not installed; run: pip install 'doap[onnx]'") from error
    if len(ranges) != len(layers) or not all(0 < largest < float("inf") for largest in ranges):
        raise DoapError(f"{model.name}: activation ranges must be {len(layers)} positive numbers; calibrate it again")
    return build_graph(layers, ranges, model.input_size, operands or choose_operands(), model.network.surroundings)


class Int8Network(PatchNetwork):
    """A quantised network; for inference on a CPU only.

    It runs on `torch.get_num_threads()` threads. The session of onnxruntime is not copied or pickled, but made again
    from the graph, as it is in a forked process.

    Args:
        graph: Model from `build_graph`.
        network: The network that it computes.
        block: Pixels per block of the input of the graph, from `build_graph`.
    """

    graph: Tensor

    def __init__(self, graph: bytes, network: PatchNetwork, block: int) -> None:
        super().__init__(network.dimensions, network.input_size)
        self.surroundings = network.surroundings
        self.block = block
        self.register_buffer("graph", torch.frombuffer(bytearray(graph), dtype=torch.uint8))
        self._session: InferenceSession | None = None
        self._session_key = (0, 0)
        super().train(False)

    def forward(self, patches: Tensor) -> Tensor:
        """Compute (N, dimensions) float32 activations of (N, 1, S, S) float patches with grey values in 0..255."""
        self.check(patches)
        if patches.requires_grad and torch.is_grad_enabled():
            raise DoapError("an int8 network has no gradient; load the model with fast=False to train it")
        size = self.input_size
        blocks = patches.float().reshape(-1, size, size // self.block, self.block).numpy()
        activations = np.empty((len(blocks), self.dimensions), np.float32)
        session = self._open_session()
        for start in range(0, len(blocks), BATCH):
            part = slice(start, start + BATCH)
            activations[part] = session.run(None, {"patches": blocks[part]})[0]
        return torch.from_numpy(activations)

    def train(self, mode: bool = True) -> Self:
        """Refuse training mode.

        Raises:
            DoapError: If `mode` is true.
        """
        if mode:
            raise DoapError("an int8 network cannot be trained; load the model with fast=False")
        return super().train(mode)

    def _keep_outputs(self, count: int) -> None:
        raise DoapError(f"an int8 model cannot be truncated; load it with dimensions={count}")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Refuse other devices; a change of the floating-point type does not concern integers."""
        if fn(torch.empty(1, dtype=torch.uint8)).device.type != "cpu":
            raise DoapError("an int8 network runs on a CPU only; load the model without int8 for another device")
        applied: Self = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return applied

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the session, which cannot be copied."""
        return {**self.__dict__, "_session": None}

    def _open_session(self) -> "InferenceSession":
        """Return the session of this process and number of threads."""
        process, threads = os.getpid(), torch.get_num_threads()
        if self._session is not None and self._session_key[0] != process:
            _INHERITED.append(self._session)
        if self._session is None or self._session_key != (process, threads):
            self._session = _create_session(self.graph.numpy().tobytes(), threads)
            self._session_key = process, threads
        return self._session


def _create_session(graph: bytes, threads: int) -> "InferenceSession":
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Idle threads would take time from those of torch and OpenCV.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return InferenceSession(graph, options, providers=["CPUExecutionProvider"])
