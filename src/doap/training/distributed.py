"""Devices, processes and precision of a training.

Fabric starts the processes, on one machine or, under `torchrun` or SLURM, on several. Each rank describes its rows of
a batch; the objective ranks the rows of all. Batch normalisation uses the statistics of all ranks, dropout samples one
mask for the whole batch, and gradients are averaged, so that several processes train what one process would.
"""

import ctypes
import logging
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from doap.errors import DoapError
from doap.networks.inference import multiplies_bfloat16
from doap.training.recipes.recipe import Recipe

if TYPE_CHECKING:
    from lightning.fabric import Fabric

# Parameters of mallopt, from glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3


def make_fabric(recipe: Recipe, device: str, devices: int) -> "Fabric":
    """Return the processes and the precision of a training, not yet launched.

    Args:
        recipe: Recipe with the precision.
        device: "cpu", "cuda" or "mps".
        devices: Processes, or GPUs, on this machine; ignored if `torchrun` or SLURM started the processes.

    Raises:
        DoapError: If the machine has fewer GPUs, or trainings do not run on the device.
    """
    from lightning.fabric import Fabric  # takes seconds to import

    for library in ("lightning.fabric", "lightning.pytorch"):  # their messages repeat run.json
        logging.getLogger(library).setLevel(logging.WARNING)
    processes, nodes = launcher_processes() or (devices, 1)
    target = torch.device(device)
    if target.type not in ("cpu", "cuda", "mps"):
        raise DoapError(f"device {device}: trainings run on cpu, cuda or mps")
    if target.type == "cuda" and processes > torch.cuda.device_count():
        raise DoapError(f"--devices {processes}: this machine has {torch.cuda.device_count()} GPUs; use fewer")
    return Fabric(
        accelerator=target.type,
        devices=[target.index or 0] if target.type == "cuda" and processes == 1 else processes,
        num_nodes=nodes,
        strategy="ddp" if processes * nodes > 1 else "auto",
        precision="bf16-mixed" if is_bfloat16(recipe, device) else "32-true",
    )


def is_bfloat16(recipe: Recipe, device: str) -> bool:
    """Return whether the network computes in bfloat16: as the recipe says, or by default if the hardware does."""
    if recipe.precision != "auto":
        return recipe.precision == "bf16"
    return multiplies_bfloat16(torch.device(device).type)


def launcher_processes() -> tuple[int, int] | None:
    """Return (processes per machine, machines) if `torchrun` or SLURM started this process, else None."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        processes = int(os.environ["LOCAL_WORLD_SIZE"])
        return processes, int(os.environ["WORLD_SIZE"]) // processes
    if "SLURM_PROCID" in os.environ and int(os.environ.get("SLURM_NTASKS", "1")) > 1:
        nodes = int(os.environ.get("SLURM_NNODES", "1"))
        return int(os.environ["SLURM_NTASKS"]) // nodes, nodes
    return None


def is_rank_zero() -> bool:
    """Return whether this process is rank zero, which writes files and messages; also before the launch."""
    return int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", os.environ.get("LOCAL_RANK", "0")))) == 0


def make_reproducible(device: torch.device) -> None:
    """Make a training give the same numbers in every process of this machine."""
    # Setting the number of threads, even to its current value, keeps MKL from using fewer on a busy machine, which
    # would split sums, and so round, differently.
    torch.set_num_threads(torch.get_num_threads())
    if device.type == "cpu":
        keep_freed_memory()
    else:
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True


def keep_freed_memory() -> None:
    """Let glibc keep freed memory instead of returning it to the system; no effect with another libc.

    Otherwise the activations of every step are mapped and zeroed again, a fifth of the time of a step on a CPU.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(M_MMAP_THRESHOLD, 2**30)
    except (OSError, AttributeError):
        return


def synchronise_layers(network: nn.Module, device: torch.device) -> None:
    """Replace batch normalisation and dropout by layers that see the whole batch; names of weights stay."""
    for name, child in network.named_children():
        if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d):
            kind = nn.SyncBatchNorm if device.type == "cuda" else _SyncBatchNormCPU
            layer = kind(child.num_features, child.eps, child.momentum, child.affine).to(device)
            layer.load_state_dict(child.state_dict())
            setattr(network, name, layer)
        elif isinstance(child, nn.Dropout):
            setattr(network, name, SyncDropout(child.p))
        else:
            synchronise_layers(child, device)


def average_gradients(parameters: Iterable[nn.Parameter], ranks: int) -> None:
    """Replace every gradient by its mean over all ranks."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= ranks
    for gradient, mean in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


class AutocastNetwork(nn.Module):
    """Network that computes in the precision of the training."""

    def __init__(self, network: Callable[[Tensor], Tensor], fabric: "Fabric") -> None:
        super().__init__()
        self.network = network
        self._fabric = fabric

    def forward(self, patches: Tensor) -> Tensor:
        """Return the activations of the network."""
        with self._fabric.autocast():
            return self.network(patches)


class SyncDropout(nn.Dropout):
    """Dropout with this rank's rows of the mask that one process would sample for the whole batch.

    All ranks sample from the same random state.

    Attributes:
        rows: Rows of this rank in the batch.
        total: Number of patches in the whole batch.
    """

    rows = slice(0)
    total = 0

    def forward(self, values: Tensor) -> Tensor:
        """Apply dropout in training mode; (m, C, H, W) or (m, C)."""
        if not self.training or self.p == 0:
            return values
        layout = torch.channels_last if values.ndim == 4 else torch.contiguous_format
        mask = torch.empty(
            (self.total, *values.shape[1:]), dtype=values.dtype, device=values.device, memory_format=layout
        )
        return values * mask.bernoulli_(1 - self.p).div_(1 - self.p)[self.rows]


class _SyncBatchNormCPU(nn.SyncBatchNorm):
    """`nn.SyncBatchNorm` for the CPU, where torch's own does not train."""

    def forward(self, values: Tensor) -> Tensor:
        if not self.training:
            return super().forward(values)
        reduced = [0, *range(2, values.ndim)]
        shape = [1, -1, *(1 for _ in reduced[1:])]
        count = _all_reduce_sum(values.new_tensor([values.numel() / values.shape[1]], dtype=torch.float32))
        mean = _all_reduce_sum(values.float().sum(reduced)) / count
        centred = values - mean.view(shape)
        variance = _all_reduce_sum(centred.float().square().sum(reduced)) / count
        with torch.no_grad():
            running, momentum = dict(self.named_buffers()), self.momentum or 0.0
            running["running_mean"].lerp_(mean, momentum)
            running["running_var"].lerp_(variance * count / (count - 1), momentum)
            running["num_batches_tracked"].add_(1)
        return (centred * (variance + self.eps).rsqrt().view(shape)).to(values.dtype)


class _AllReduceSum(torch.autograd.Function):
    """Sum over all ranks; its gradient is the sum of the gradients of all ranks."""

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


def _all_reduce_sum(values: Tensor) -> Tensor:
    total: Tensor = _AllReduceSum.apply(values)  # type: ignore[no-untyped-call]
    return total
