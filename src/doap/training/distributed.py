"""Several processes, one training: together they compute what one process with the whole list would.

Fabric starts the processes, on one machine or, under `torchrun` or SLURM, on many. Each rank describes its
rows of the list; the objective spans all of them. Batch normalisation takes its statistics over all ranks,
dropout draws one mask for the whole list, and the ranks' gradients are averaged.
"""

import logging
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from doap.errors import DoapError
from doap.networks.inference import multiplies_bfloat16
from doap.training.recipe import Recipe

if TYPE_CHECKING:
    from lightning.fabric import Fabric


def make_fabric(recipe: Recipe, device: str, devices: int) -> "Fabric":
    """The processes and the precision of a training; not yet started.

    Args:
        recipe: says the precision.
        device: "cpu", "cuda" or "mps".
        devices: processes, or GPUs, on this machine. Where `torchrun` or SLURM started the processes, they
            decide.
    """
    from lightning.fabric import Fabric  # seconds to import, and only trainings need it

    for library in ("lightning.fabric", "lightning.pytorch"):  # what they would say, run.json says
        logging.getLogger(library).setLevel(logging.WARNING)
    here, nodes = started_elsewhere() or (devices, 1)
    place = torch.device(device)
    if place.type == "cuda" and here > torch.cuda.device_count():
        raise DoapError(f"--devices {here}: this machine has {torch.cuda.device_count()} GPUs")
    return Fabric(
        accelerator=place.type,
        devices=[place.index or 0] if place.type == "cuda" and here == 1 else here,
        num_nodes=nodes,
        strategy="ddp" if here * nodes > 1 else "auto",
        precision="bf16-mixed" if is_bfloat16(recipe, device) else "32-true",
    )


def is_bfloat16(recipe: Recipe, device: str) -> bool:
    """Whether the network computes in bfloat16: if the recipe says so, or leaves it open and the hardware has it."""
    if recipe.precision != "auto":
        return recipe.precision == "bf16"
    return multiplies_bfloat16(torch.device(device).type)


def started_elsewhere() -> tuple[int, int] | None:
    """Processes on this machine and machines, where `torchrun` or SLURM started this process; None otherwise."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        here = int(os.environ["LOCAL_WORLD_SIZE"])
        return here, int(os.environ["WORLD_SIZE"]) // here
    if "SLURM_PROCID" in os.environ and int(os.environ.get("SLURM_NTASKS", "1")) > 1:
        nodes = int(os.environ.get("SLURM_NNODES", "1"))
        return int(os.environ["SLURM_NTASKS"]) // nodes, nodes
    return None


def is_rank_zero() -> bool:
    """Whether this process, started or not yet, is the one that writes and speaks."""
    return int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", os.environ.get("LOCAL_RANK", "0")))) == 0


def share_statistics(network: nn.Module, device: torch.device) -> None:
    """Let batch normalisation and dropout see the whole list; names of weights stay."""
    for name, child in network.named_children():
        if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d):
            kind = nn.SyncBatchNorm if device.type == "cuda" else _SharedBatchNorm
            shared = kind(child.num_features, child.eps, child.momentum, child.affine).to(device)
            shared.load_state_dict(child.state_dict())
            setattr(network, name, shared)
        elif isinstance(child, nn.Dropout):
            setattr(network, name, SharedDropout(child.p))
        else:
            share_statistics(child, device)


def average_gradients(parameters: Iterable[nn.Parameter], ranks: int) -> None:
    """Replace every gradient by its mean over all ranks."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= ranks
    for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


class InPrecision(nn.Module):
    """A network computing in the precision of the training; its backward pass follows by itself."""

    def __init__(self, network: Callable[[Tensor], Tensor], fabric: "Fabric") -> None:
        super().__init__()
        self.network = network
        self._fabric = fabric

    def forward(self, patches: Tensor) -> Tensor:
        """As the network."""
        with self._fabric.autocast():
            return self.network(patches)


class SharedDropout(nn.Dropout):
    """Dropout whose mask is this rank's rows of the mask that one process would draw for the whole list.

    All ranks draw with the same random state; `rows` and `total` say where in the list they are.
    """

    rows = slice(0)
    total = 0

    def forward(self, values: Tensor) -> Tensor:
        """Zero some values and scale the others up, in training; (m, C, H, W) or (m, C)."""
        if not self.training or self.p == 0:
            return values
        layout = torch.channels_last if values.ndim == 4 else torch.contiguous_format
        whole = torch.empty(
            (self.total, *values.shape[1:]), dtype=values.dtype, device=values.device, memory_format=layout
        )
        return values * whole.bernoulli_(1 - self.p).div_(1 - self.p)[self.rows]


class _SharedBatchNorm(nn.SyncBatchNorm):
    """`nn.SyncBatchNorm` on the CPU, where torch's own refuses to train."""

    def forward(self, values: Tensor) -> Tensor:
        if not self.training:
            return super().forward(values)
        places = [0, *range(2, values.ndim)]
        a_channel = [1, -1, *(1 for _ in places[1:])]
        count = _total(values.new_tensor([values.numel() / values.shape[1]], dtype=torch.float32))
        mean = _total(values.float().sum(places)) / count
        centred = values - mean.view(a_channel)
        variance = _total(centred.float().square().sum(places)) / count
        with torch.no_grad():
            moving, share = dict(self.named_buffers()), self.momentum or 0.0
            moving["running_mean"].lerp_(mean, share)
            moving["running_var"].lerp_(variance * count / (count - 1), share)
            moving["num_batches_tracked"].add_(1)
        return (centred * (variance + self.eps).rsqrt().view(a_channel)).to(values.dtype)


class _Total(torch.autograd.Function):
    """The sum over all ranks; its gradient is the sum of all ranks' gradients."""

    @staticmethod
    def forward(_ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total


def _total(values: Tensor) -> Tensor:
    found: Tensor = _Total.apply(values)  # type: ignore[no-untyped-call]
    return found
