"""Loading and saving models: safetensors, and beside them a card that says what they are.

`NAME.safetensors` holds the weights, `NAME.json` the card: how to build the network, how to use it, where
it comes from, and the SHA-256 of the weights. Pickles are never read.
"""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

import safetensors.torch
import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError

from doap.errors import DoapError
from doap.files import atomic_file, write_text
from doap.networks.architecture import Architecture, build
from doap.networks.baselines import handcrafted, list_baselines, load_published
from doap.networks.descriptor import Descriptor
from doap.types import DETECTOR_NAMES, Kind

DEFAULT_MODEL = "doap-128"
SHIPPED = Path(__file__).parent.parent / "weights"


class DataSource(BaseModel):
    """Photos of one source under one licence, of those that a model was trained on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    licence: str
    photos: int = Field(gt=0)


class Origin(BaseModel):
    """Where a model comes from, and what is known of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    licence: str = ""
    data: str = Field(default="", description="what it was trained on")
    sources: list[DataSource] = Field(default_factory=list, description="of its photos, where they are known")
    recipe: dict[str, Any] = Field(default_factory=dict)
    figures: dict[str, float] = Field(default_factory=dict, description="what was measured, and by which command")
    notes: dict[str, Any] = Field(default_factory=dict, description="command, versions, frames, limits")


def _known_detector(name: str) -> str:
    if name not in DETECTOR_NAMES:
        raise ValueError(f"{name} is no detector; there are {', '.join(DETECTOR_NAMES)}")
    return name


Extent = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Card(BaseModel):
    """What stands in NAME.json."""

    model_config = ConfigDict(extra="forbid")

    name: str
    kind: Kind
    architecture: Architecture
    input_size: int = Field(gt=0, description="side of the patches that the network reads")
    extent: Extent = Field(description="trained at: half the patch's side in units of its frame's scale")
    extents: dict[Annotated[str, AfterValidator(_known_detector)], Extent] = Field(
        default_factory=dict, description="best for the frames of a detector, instead of `extent`"
    )
    sha256: str = Field(description="of the weights")
    origin: Origin = Origin()


def list_models() -> list[str]:
    """Names of the models that ship with the package.

    Example:
        >>> import doap
        >>> "doap-demo-128" in doap.list_models()
        True
    """
    return sorted(path.stem for path in SHIPPED.glob("*.safetensors"))


def load(name_or_path: str | Path, device: str | torch.device = "cpu") -> Descriptor:
    """Load a model by the name of a shipped one, or by the path of its .safetensors file; or a peer likewise.

    Args:
        name_or_path: for example "doap-demo-128" or "out/demo/real/weights.safetensors"; the name of a handcrafted
            peer, such as "rootsift"; or the published weights of a peer, which need no card.
        device: where to put it.

    Raises:
        DoapError: one line, for an unknown name, a missing card, or damaged or foreign weights.

    Example:
        >>> import doap
        >>> model = doap.load("doap-demo-256b")
        >>> model.kind, model.network.dimensions
        ('binary', 256)
    """
    if str(name_or_path) in list_baselines():
        return handcrafted(str(name_or_path)).to(device).eval()
    path = find_weights(str(name_or_path))
    if not path.with_suffix(".json").exists() and (peer := load_published(path)):
        return peer.to(device).eval()
    card = read_card(path)
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != card.sha256:
        raise DoapError(f"{path}: differs from what its card {path.with_suffix('.json').name} describes; get it again")
    try:
        weights = safetensors.torch.load(content)
    except SafetensorError as error:
        raise DoapError(f"{path}: not a safetensors file ({error})") from error
    network = build(card.architecture)
    if network.input_size != card.input_size:
        raise DoapError(f"{path}: its network reads {network.input_size} pixels, but its card says {card.input_size}")
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise DoapError(f"{path}: its tensors are not those of the network that the card describes") from error
    return Descriptor(network, card.kind, card.extent, card.name, card.extents).to(device).eval()


def find_card(name_or_path: str) -> Card | None:
    """The card of what `load` loads by this name or path; None for a peer without one."""
    if name_or_path in list_baselines():
        return None
    path = find_weights(name_or_path)
    return read_card(path) if path.with_suffix(".json").exists() else None


def read_card(weights: Path) -> Card:
    """The card beside a .safetensors file."""
    file = weights.with_suffix(".json")
    try:
        return Card.model_validate_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DoapError(f"{weights}: its card {file.name} cannot be read ({error.strerror})") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise DoapError(f"{file}: not a model card ({place}: {first['msg']})") from error


def save(descriptor: Descriptor, path: Path, architecture: Architecture, origin: Origin | None = None) -> None:
    """Write a model's weights to `path` (.safetensors) and its card beside it, weights first.

    Args:
        descriptor: the model.
        path: of the weights.
        architecture: what its network was built from.
        origin: where it comes from.
    """
    tensors = {name: value.contiguous().cpu() for name, value in descriptor.network.state_dict().items()}
    content = safetensors.torch.save(tensors)
    with atomic_file(path) as temporary:
        temporary.write_bytes(content)
    card = Card(
        name=descriptor.name,
        kind=descriptor.kind,
        architecture=architecture,
        input_size=descriptor.input_size,
        extent=descriptor.extent,
        extents=descriptor.extents,
        sha256=hashlib.sha256(content).hexdigest(),
        origin=origin or Origin(),
    )
    write_card(path, card)


def write_card(weights: Path, card: Card) -> None:
    """Write the card beside a .safetensors file."""
    write_text(weights.with_suffix(".json"), json.dumps(card.model_dump(), indent=1) + "\n")


def find_weights(wanted: str) -> Path:
    """The .safetensors file of what `load` loads by this name or path.

    Raises:
        DoapError: if there is none.
    """
    if wanted in list_models():
        return SHIPPED / f"{wanted}.safetensors"
    path = Path(wanted)
    if path.suffix == ".safetensors" and path.is_file():
        return path
    if path.exists():
        raise DoapError(f"{path}: weights are .safetensors files; other formats are not read")
    known = f"{', '.join(list_models())}; and as peers: {', '.join(list_baselines())}"
    raise DoapError(f"{wanted}: no such file, and no model of this name (there are: {known})")
