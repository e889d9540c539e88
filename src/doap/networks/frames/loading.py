"""Loading and saving of networks that correct frames: weights `NAME.safetensors`, and a card `NAME.json` beside."""

import hashlib
from functools import lru_cache
from pathlib import Path

import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError

from doap.errors import DoapError
from doap.files import atomic_file, write_text
from doap.networks.card import Origin, card_path
from doap.networks.frames.frame_network import FrameNetwork, FrameSettings
from doap.networks.inference.optimizing import optimize_layers
from doap.networks.network import load_weights

WEIGHTS_FOLDER = Path(__file__).parents[2] / "weights" / "frames"
DEFAULT_FRAMES = "doap-frames"

FileVersion = tuple[int, int, int] | None
"""Inode, size and time of the last change in nanoseconds; None if the file cannot be found."""


class FrameCard(BaseModel):
    """Content of the card of a network that corrects frames."""

    model_config = ConfigDict(extra="forbid")

    name: str
    network: FrameSettings
    sha256: str = Field(description="SHA-256 of the weights file")
    origin: Origin = Origin()


def save_frame_network(network: FrameNetwork, path: Path, name: str, origin: Origin) -> None:
    """Write the weights to a .safetensors file, then the card beside it."""
    content = safetensors.torch.save({key: value.contiguous().cpu() for key, value in network.state_dict().items()})
    with atomic_file(path) as temporary:
        temporary.write_bytes(content)
    card = FrameCard(name=name, network=network.settings, sha256=hashlib.sha256(content).hexdigest(), origin=origin)
    write_text(card_path(path), card.model_dump_json(indent=1) + "\n")


def load_frame_network(name_or_path: str = DEFAULT_FRAMES, device: str = "cpu") -> FrameNetwork:
    """Load a network that corrects frames, by name or from a .safetensors file with its card; in its inference form.

    The last networks are cached until one of their files changes.

    Raises:
        DoapError: If there is no such network, or its files are damaged.
    """
    path = _find(name_or_path)
    return _load_version(name_or_path, device, _file_version(path), _file_version(card_path(path)))


@lru_cache(8)
def _load_version(name_or_path: str, device: str, _weights: FileVersion, _card: FileVersion) -> FrameNetwork:
    """Load a network; the versions of its two files are there for the key of the cache only."""
    network = FrameNetwork(read_frame_card(name_or_path).network)
    load_initial(network, name_or_path)
    return optimize_layers(network.to(device), torch.float32, torch.device(device))


def load_initial(network: FrameNetwork, name_or_path: str) -> None:
    """Copy the weights of a saved network to one of the same width.

    Raises:
        DoapError: If there is no such network, its files are damaged, or its tensors are of other shapes.
    """
    path, card = _find(name_or_path), read_frame_card(name_or_path)
    try:
        content = path.read_bytes()
        weights = safetensors.torch.load(content)
    except OSError as error:
        raise DoapError(f"{path}: cannot be read ({error.strerror})") from error
    except SafetensorError as error:
        raise DoapError(f"{path}: not a safetensors file ({error})") from error
    if hashlib.sha256(content).hexdigest() != card.sha256:
        raise DoapError(f"{path}: its SHA-256 differs from that in {card_path(path).name}; copy both files again")
    shapes = {key: value.shape for key, value in network.state_dict().items()}
    if {key: value.shape for key, value in weights.items()} != shapes:
        raise DoapError(f"{path}: its tensors are not those of a network of width {network.settings.width}")
    load_weights(network, weights, path)


def read_frame_card(name_or_path: str) -> FrameCard:
    """Read the card of a network that corrects frames.

    Raises:
        DoapError: If there is none, or it is damaged.
    """
    path = _find(name_or_path)
    file = card_path(path)
    try:
        return FrameCard.model_validate_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DoapError(f"{path}: no network that corrects frames, it has no card {file.name}") from error
    except (ValidationError, ValueError) as error:
        raise DoapError(f"{file}: not the card of a network that corrects frames") from error


def _file_version(path: Path) -> FileVersion:
    try:
        status = path.stat()
    except OSError:  # reading the file will say what is wrong
        return None
    # A file that is written within one tick of the clock keeps its time, but atomic writing gives it a new inode.
    return status.st_ino, status.st_size, status.st_mtime_ns


def _find(name_or_path: str) -> Path:
    shipped = WEIGHTS_FOLDER / f"{name_or_path}.safetensors"
    return shipped if shipped.is_file() else Path(name_or_path)
