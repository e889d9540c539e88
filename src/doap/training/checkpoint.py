"""Where a training starts: from a checkpoint, its whole state in one safetensors file, or from a trained model."""

import hashlib
import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from doap.errors import DoapError
from doap.files import atomic_file
from doap.networks import registry
from doap.networks.card import TrainingSet
from doap.networks.network import PatchNetwork
from doap.parsing.json_files import parse_json
from doap.training.averaging import MovingAverage
from doap.training.recipes.recipe import Recipe

STATE_KEY = "place"  # in the metadata of the file
CHECKSUM_KEY = "sha256"  # beside the state; one entry of the metadata, because the order of several is random
DAMAGE = (OSError, SafetensorError, KeyError, TypeError, ValueError)

logger = logging.getLogger(__name__)


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
    """Write a checkpoint with its checksum, atomically; the one before stays, see `recover_checkpoint`."""
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    for name, parameter in network.named_parameters():
        momentum = optimiser.state[parameter].get("momentum_buffer")
        if momentum is not None:
            tensors[f"momentum.{name}"] = momentum
    if average:
        tensors |= {f"average.{name}": value for name, value in average.network.state_dict().items()}
        tensors["steps"] = torch.tensor(average.steps)
    content = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    values = asdict(state)
    metadata = {STATE_KEY: json.dumps({**values, CHECKSUM_KEY: _checksum(values, content)})}
    with atomic_file(path) as temporary:
        save_file(content, temporary, metadata)
        if path.exists():
            path.replace(previous_checkpoint(path))


def save_file(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    """Write safetensors to a file; the library's own function leaves a file of another name if it is killed."""
    path.write_bytes(save(tensors, metadata))


def previous_checkpoint(path: Path) -> Path:
    """Return the path of the checkpoint before the one of a path."""
    return path.with_stem(f"{path.stem}-previous")


def recover_checkpoint(path: Path) -> None:
    """Replace a damaged checkpoint by the one before it, and log a warning.

    A process that is killed while it replaces a checkpoint leaves only the one before, which is then used.

    Raises:
        DoapError: If the checkpoint is damaged and there is none before it that is not.
    """
    previous = previous_checkpoint(path)
    if not path.exists():
        if previous.exists():
            previous.replace(path)
        return
    damage = _find_damage(path)
    if damage is None:
        return
    if not previous.exists() or _find_damage(previous):
        raise DoapError(
            f"{path}: damaged, or not a checkpoint ({damage}), and there is no earlier one; remove it to train from "
            "the start"
        )
    previous.replace(path)
    logger.warning("%s: was damaged (%s); the training continues from the checkpoint before it", path, damage)


def load_checkpoint(
    path: Path, network: nn.Module, optimiser: torch.optim.SGD, average: MovingAverage | None = None
) -> TrainState:
    """Restore network, optimiser and average from a checkpoint.

    Raises:
        DoapError: If the file cannot be read or belongs to another training.
    """
    try:
        state, tensors = _read_checkpoint(path)
        network.load_state_dict(_with_prefix("network.", tensors))
        if average:
            average.network.load_state_dict(_with_prefix("average.", tensors))
            average.steps = int(tensors["steps"])
    except (*DAMAGE, RuntimeError) as error:
        raise DoapError(f"{path}: not a checkpoint of this training ({' '.join(str(error).split())})") from error
    for name, parameter in network.named_parameters():
        if f"momentum.{name}" in tensors:
            # In the memory layout of the parameter: another layout changes the order of sums, and so rounding.
            momentum = torch.empty_like(parameter).copy_(tensors[f"momentum.{name}"])
            optimiser.state[parameter]["momentum_buffer"] = momentum
    return state


def _read_checkpoint(path: Path) -> tuple[TrainState, dict[str, Tensor]]:
    """Return the content of a checkpoint; raises one of `DAMAGE` if it is not whole.

    Checkpoints of version 0.2 and earlier have no checksum.
    """
    with safe_open(path, framework="pt") as file:
        values = dict(parse_json(file.metadata()[STATE_KEY]))
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    checksum = values.pop(CHECKSUM_KEY, None)
    if checksum is not None and checksum != _checksum(values, tensors):
        raise ValueError("its checksum differs")
    return TrainState(**values), tensors


def _find_damage(path: Path) -> str | None:
    """Return why a checkpoint cannot be read, or None if it is whole."""
    try:
        _read_checkpoint(path)
    except DAMAGE as error:
        return " ".join(str(error).split())
    return None


def _checksum(state: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(state, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def check_initial_weights(recipe: Recipe) -> list[TrainingSet]:
    """Check that a recipe can start from its `initial_weights`, and return what these were trained on.

    Raises:
        DoapError: If the model has another architecture, or no card that names it.
    """
    if recipe.initial_weights is None:
        return []
    card = registry.find_card(recipe.initial_weights)
    if card is None:
        raise DoapError(
            f"initial_weights={recipe.initial_weights}: its architecture is unknown, it has no card; make one with "
            "doap convert"
        )
    own = recipe.architecture.model_dump()
    different = {key: value for key, value in card.architecture.model_dump().items() if own[key] != value}
    if different:
        theirs = ", ".join(f"{key}={_yaml(value)}" for key, value in different.items())
        ours = ", ".join(f"{key}={_yaml(own[key])}" for key in different)
        raise DoapError(
            f"initial_weights={recipe.initial_weights}: its network has {theirs}, but that of the recipe {ours}; "
            "set the recipe to these values, or choose another model"
        )
    return card.origin.training_sets


def find_teachers_sets(recipe: Recipe) -> list[TrainingSet]:
    """Return the sets that the teachers of a recipe were trained on, which a student learns as well, if known."""
    cards = filter(None, map(registry.find_card, recipe.teachers))
    return [data for card in cards for data in card.origin.training_sets]


def load_initial_weights(network: PatchNetwork, model: str) -> None:
    """Copy the weights and statistics of a trained model of the same architecture, exactly."""
    network.load_state_dict(registry.load(model, fast=False).network.state_dict())


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
