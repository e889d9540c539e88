"""Batches between the memory of the host and a CUDA device, with copies that overlap the computation."""

from collections.abc import Callable

import torch
from torch import Tensor

SLOTS = 3  # batches under way: one copied to the device, one computed, one copied back


class _Slot:
    """Pinned memory of one batch, and the event after which its result is on the host."""

    def __init__(self, inputs: Tensor) -> None:
        self.inputs = torch.empty_like(inputs, pin_memory=True)
        self.results = torch.empty(0)
        self.done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.rows = slice(0, 0)  # rows of the output that this slot holds

    def copy_back(self, result: Tensor, stream: torch.cuda.Stream) -> None:
        """Copy a result to the host on a stream."""
        if len(self.results) != len(result):
            self.results = torch.empty_like(result, device="cpu", pin_memory=True)
        with torch.cuda.stream(stream):
            self.results.copy_(result, non_blocking=True)
            self.done.record(stream)

    def collect(self, output: Tensor) -> None:
        """Copy the result, once it is on the host, to its rows of the output."""
        self.done.synchronize()
        output[self.rows].copy_(self.results[: self.rows.stop - self.rows.start])


def map_batches(
    function: Callable[[Tensor], Tensor],
    read: Callable[[slice], Tensor],
    rows: int,
    size: int,
    device: torch.device,
) -> Tensor:
    """Apply a function to batches of rows on a CUDA device.

    Args:
        function: Maps (n, ...) on the device to (n, ...) on the device, row by row. All batches have the same size: the
            last is filled up with arbitrary rows.
        read: Returns some rows of the input, (n, ...) on the host.
        rows: N, number of rows of the input, at least 1.
        size: Rows per batch.
        device: The CUDA device.

    Returns:
        (N, ...) on the host.
    """
    size = min(size, rows)
    count = -(-rows // size)
    compute = torch.cuda.current_stream(device)
    incoming, outgoing = (torch.cuda.Stream(device) for _ in range(2))  # type: ignore[no-untyped-call]
    slots = [_Slot(read(slice(0, size))) for _ in range(min(SLOTS, count))]
    output = torch.empty(0)
    for number in range(count + len(slots)):
        slot = slots[number % len(slots)]
        if number >= len(slots):
            slot.collect(output)
        if number >= count:
            continue
        slot.rows = slice(number * size, min((number + 1) * size, rows))
        slot.inputs[: slot.rows.stop - slot.rows.start].copy_(read(slot.rows))
        with torch.cuda.stream(incoming):
            batch = slot.inputs.to(device, non_blocking=True)
        compute.wait_stream(incoming)
        batch.record_stream(compute)
        result = function(batch)
        outgoing.wait_stream(compute)
        result.record_stream(outgoing)
        slot.copy_back(result, outgoing)
        if not number:
            output = torch.empty(rows, *result.shape[1:], dtype=result.dtype)
    return output
