"""Checkpoints: all that a training needs to go on exactly where it was, as one safetensors file."""

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


@dataclass(frozen=True)
class TrainState:
    """Where a training is: its epoch, how many batches of it are done, and the best held-out AP so far.

    Whatever is random in a step follows from the seed and these numbers, so no random state is kept.
    """

    epoch: int = 0
    batch: int = 0
    best: float = 0.0


def save_checkpoint(
    path: Path, network: nn.Module, optimiser: torch.optim.SGD, place: TrainState, average: MovingAverage | None = None
) -> None:
    """Write the state, atomically: the one before stays until this one is whole."""
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
        save_file(content, temporary, {"place": json.dumps(asdict(place))})


def load_checkpoint(
    path: Path, network: nn.Module, optimiser: torch.optim.SGD, average: MovingAverage | None = None
) -> TrainState:
    """Put a saved state back."""
    try:
        with safe_open(path, framework="pt") as file:
            place = TrainState(**json.loads(file.metadata()["place"]))
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        network.load_state_dict(_under("network.", tensors))
        if average:
            average.network.load_state_dict(_under("average.", tensors))
            average.steps = int(tensors["steps"])
    except (OSError, SafetensorError, RuntimeError, KeyError, TypeError, ValueError) as error:
        raise DoapError(f"{path}: not a checkpoint of this training ({' '.join(str(error).split())})") from error
    for name, parameter in network.named_parameters():
        if f"momentum.{name}" in tensors:
            # In the layout of the parameter: another order of the same numbers would round otherwise.
            momentum = torch.empty_like(parameter).copy_(tensors[f"momentum.{name}"])
            optimiser.state[parameter]["momentum_buffer"] = momentum
    return place


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
