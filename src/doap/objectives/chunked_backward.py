"""Backward through lists longer than the network's batch, known as gradient caching.

The network runs twice over each chunk of patches. The first pass keeps no activations and yields the outputs. The
objective gives the gradient of all M outputs, and the second pass propagates it to the parameters, chunk by chunk:

    ∂L/∂θ = Σ_chunks (∂F(chunk)/∂θ)ᵀ ∂L/∂F(chunk)

Both passes compute the same outputs: the random state of each chunk is restored, so dropout masks are equal. Batch
normalisation in training mode uses the statistics of the chunk, equal in both passes; running statistics, like all
buffers, are updated once, in the first pass. The gradient is therefore exactly that of one pass over all M patches
with each chunk normalised by itself. For a network without batch normalisation that is the gradient of the whole list.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import get_device_states, set_device_states


def backward_in_chunks(network: nn.Module, chunks: Sequence[Tensor], objective: Callable[[Tensor], Tensor]) -> Tensor:
    """Add the gradient of `objective` over the outputs of all chunks to the parameters' `.grad`.

    Peak memory is that of the network on one chunk, plus all M outputs and their gradient. Under
    `DistributedDataParallel`, call it in `network.no_sync()` and reduce the gradients afterwards; otherwise
    every chunk's backward reduces them.

    Args:
        network: Maps N patches to (N, d) outputs.
        chunks: The patches of the list, split into inputs of `network`.
        objective: Maps all M outputs, (M, d), to the scalar loss; to scale the loss, scale it here.

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
    random_states: list[_RandomState] = []
    chunk_outputs: list[Tensor] = []
    with torch.no_grad():
        for chunk in chunks:
            random_states.append(_RandomState(chunk))
            chunk_outputs.append(network(chunk))
    outputs = torch.cat(chunk_outputs).requires_grad_()
    loss = objective(outputs)
    (gradient,) = torch.autograd.grad(loss, outputs)
    final_state = _RandomState(*chunks)
    chunk_gradients = torch.split(gradient, [len(rows) for rows in chunk_outputs])
    with _preserve_buffers(network):
        for chunk, random_state, chunk_gradient in zip(chunks, random_states, chunk_gradients, strict=True):
            random_state.restore()
            network(chunk).backward(chunk_gradient)
    final_state.restore()
    return loss.detach()


class _RandomState:
    """The random state of the CPU and of the devices of some tensors."""

    def __init__(self, *tensors: Tensor) -> None:
        self._cpu = torch.get_rng_state()
        self._type = tensors[0].device.type
        self._devices, self._states = get_device_states(*tensors)

    def restore(self) -> None:
        torch.set_rng_state(self._cpu)
        set_device_states(self._devices, self._states, device_type=self._type)


@contextmanager
def _preserve_buffers(network: nn.Module) -> Iterator[None]:
    """Restore the network's buffers on exit, so that running statistics are not updated twice."""
    saved = [(buffer, buffer.clone()) for buffer in network.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in saved:
                buffer.copy_(value)
