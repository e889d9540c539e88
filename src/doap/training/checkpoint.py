"""Checkpoints: the whole state of a training in one safetensors file."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from doap.errors import DoapError
from doap.files import atomic_file
from doap.training.averaging import MovingAverage

STATE_KEY = "place"  # in the metadata of the file


@dataclass(frozen=True)
class TrainState:
    """Position of a training.

    No random state is stored: everything random in a step follows from the seed and these numbers.

    Attributes:
        epoch: Current epoch, from 0.
        batch: Batches of it that are done.
        best: Best validation AP so far.
    """

    epoch: int = 0
    batch: int = 0
    best: float = 0.0


def save_checkpoint(
    path: Path, network: nn.Module, optimiser: torch.optim.SGD, state: TrainState, average: MovingAverage | None = None
) -> None:
    """Write a checkpoint atomically: the previous one stays until this one is complete."""
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    for name, parameter in network.named_parameters():
        momentum = optimiser.state[parameter].get("momentum_buffer")
        if momentum is not None:
            tensors[f"momentum.{name}"] = momentum
    if average:
        tensors |= {f"average.{name}": value for name, value in average.network.state_dict().items()}
        tensors["steps"] = torch.tensor(average.steps)
    content = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    with atomic_file(path) as temporary:
        save_file(content, temporary, {STATE_KEY: json.dumps(asdict(state))})


def load_checkpoint(
    path: Path, network: nn.Module, optimiser: torch.optim.SGD, average: MovingAverage | None = None
) -> TrainState:
    """Restore network, optimiser and average from a checkpoint.

    Raises:
        DoapError: If the file cannot be read or belongs to another training.
    """
    try:
        with safe_open(path, framework="pt") as file:
            state = TrainState(**json.loads(file.metadata()[STATE_KEY]))
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        network.load_state_dict(_with_prefix("network.", tensors))
        if average:
            average.network.load_state_dict(_with_prefix("average.", tensors))
            average.steps = int(tensors["steps"])
    except (OSError, SafetensorError, RuntimeError, KeyError, TypeError, ValueError) as error:
        raise DoapError(f"{path}: not a checkpoint of this training ({' '.join(str(error).split())})") from error
    for name, parameter in network.named_parameters():
        if f"momentum.{name}" in tensors:
            # In the memory layout of the parameter: another layout changes the order of sums, and so rounding.
            momentum = torch.empty_like(parameter).copy_(tensors[f"momentum.{name}"])
            optimiser.state[parameter]["momentum_buffer"] = momentum
    return state


def _with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
