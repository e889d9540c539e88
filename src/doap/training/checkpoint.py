"""Checkpoints: all that a training needs to go on exactly where it was, as one safetensors file."""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from doap.errors import DoapError
from doap.files import atomic_file


def save_checkpoint(path: Path, network: nn.Module, optimiser: torch.optim.SGD, epoch: int, batch: int) -> None:
    """Write the state after `batch` batches of `epoch`, atomically: the one before stays until this one is whole."""
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    for number, parameter in enumerate(network.parameters()):
        momentum = optimiser.state[parameter].get("momentum_buffer")
        if momentum is not None:
            tensors[f"momentum.{number}"] = momentum
    tensors["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    place = {"place": json.dumps({"epoch": epoch, "batch": batch})}
    with atomic_file(path) as temporary:
        save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, temporary, place)


def load_checkpoint(path: Path, network: nn.Module, optimiser: torch.optim.SGD) -> tuple[int, int]:
    """Put a saved state back; returns the epoch and how many of its batches are done."""
    try:
        with safe_open(path, framework="pt") as file:
            place = json.loads(file.metadata()["place"])
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        network.load_state_dict({n.removeprefix("network."): t for n, t in tensors.items() if n.startswith("network.")})
    except (OSError, SafetensorError, RuntimeError, KeyError, TypeError, ValueError) as fault:
        raise DoapError(f"{path}: not a checkpoint of this training ({' '.join(str(fault).split())})") from fault
    for number, parameter in enumerate(network.parameters()):
        if f"momentum.{number}" in tensors:
            optimiser.state[parameter]["momentum_buffer"] = tensors[f"momentum.{number}"].to(parameter)
    torch.set_rng_state(tensors["random.cpu"])
    if "random.cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["random.cuda"])
    return int(place["epoch"]), int(place["batch"])
