"""Lists longer than the network's batch: the objective sees M descriptors, the network chunks that fit.

The network runs twice over each chunk. The first pass keeps no activations and only yields the outputs; the
objective then gives their gradient, and the second pass, chunk by chunk, carries it on to the parameters.

Both passes must compute the same outputs, so each chunk's dropout masks are drawn again from the random
state it had in the first pass. Batch normalisation in training mode normalises each chunk by the chunk's own
statistics, equal in both passes; its running statistics, like every buffer, move once, in the first pass. The
gradient is therefore exactly that of one pass over all M patches with each chunk normalised by itself; for a
network without batch normalisation that is the plain gradient of the whole list.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import get_device_states, set_device_states


def backward_in_chunks(network: nn.Module, chunks: Sequence[Tensor], objective: Callable[[Tensor], Tensor]) -> Tensor:
    """Add to the parameters' `.grad` the gradient of `objective` over the outputs of all chunks.

    Peak memory is that of the network on one chunk, plus all M outputs and their gradient. Under
    `DistributedDataParallel`, call it in `network.no_sync()` and reduce the gradients afterwards: each
    chunk's backward would reduce them otherwise.

    Args:
        network: patches to (N, d) outputs.
        chunks: the patches of the list, in parts; what `network` takes, N of them each.
        objective: all M outputs, (M, d), to the scalar loss; for a scaled loss, scale here.

    Returns:
        The loss, detached.

    Example:
        >>> import torch
        >>> from doap.objectives import AveragePrecisionLoss
        >>> network, loss = torch.nn.Linear(4, 8), AveragePrecisionLoss("real")
        >>> patches, groups = torch.randn(64, 4), torch.arange(64) // 4
        >>> value = backward_in_chunks(network, patches.split(16), lambda outputs: loss(outputs, groups))
        >>> network.weight.grad.shape
        torch.Size([8, 4])
    """
    states: list[_RandomState] = []
    parts: list[Tensor] = []
    with torch.no_grad():
        for chunk in chunks:
            states.append(_RandomState(chunk))
            parts.append(network(chunk))
    outputs = torch.cat(parts).requires_grad_()
    loss = objective(outputs)
    (gradient,) = torch.autograd.grad(loss, outputs)
    after = _RandomState(*chunks)
    with _buffers_kept(network):
        for chunk, state, part in zip(
            chunks, states, torch.split(gradient, [len(part) for part in parts]), strict=True
        ):
            state.restore()
            network(chunk).backward(part)
    after.restore()
    return loss.detach()


class _RandomState:
    """The random state of the CPU and of the devices that hold the given tensors."""

    def __init__(self, *tensors: Tensor) -> None:
        self._cpu = torch.get_rng_state()
        self._type = tensors[0].device.type
        self._devices, self._states = get_device_states(*tensors)

    def restore(self) -> None:
        torch.set_rng_state(self._cpu)
        set_device_states(self._devices, self._states, device_type=self._type)


@contextmanager
def _buffers_kept(network: nn.Module) -> Iterator[None]:
    """Undo what a pass does to the network's buffers, such as moving running statistics a second time."""
    kept = [(buffer, buffer.clone()) for buffer in network.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)
