"""Loading, saving and listing models.

A model is two files: the weights `NAME.safetensors` and the card `NAME.json`, see `doap.networks.card`. Pickles are
never read. A folder of a model hub holds them as `model.safetensors` and `config.json`, see `doap.bridges.hub`.

The name of a prefix of a nested descriptor is that of the model, or its path, and the length: `NAME@64`.
"""

import hashlib
from fnmatch import fnmatchcase
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError

from doap.errors import DoapError
from doap.files import atomic_file
from doap.networks import split_length, with_length
from doap.networks.architecture import Architecture, build_network, shapes_of
from doap.networks.baselines import list_baselines, load_handcrafted, load_published
from doap.networks.card import HUB_CARD, HUB_WEIGHTS, Card, Origin, card_path, read_card, write_card
from doap.networks.descriptor import Descriptor, check_device
from doap.networks.inference import InferenceNetwork, optimize_for_inference
from doap.networks.network import load_weights

WEIGHTS_FOLDER = Path(__file__).parent.parent / "weights"


def list_models(pattern: str = "*") -> list[str]:
    """Return the sorted names of the models that ship with the package.

    Args:
        pattern: Glob pattern that the names must match, as in `timm.list_models`.

    Example:
        >>> import doap
        >>> doap.list_models("*tiny*")
        ['doap-tiny-128', 'doap-tiny-256b']
    """
    names = sorted(path.stem for path in WEIGHTS_FOLDER.glob("*.safetensors"))
    return [name for name in names if fnmatchcase(name, pattern)]


def load(
    name_or_path: str | Path,
    device: str | torch.device = "cpu",
    fast: bool = True,
    int8: bool = False,
    dimensions: int | None = None,
) -> Descriptor:
    """Load a model or a baseline by name, or from a .safetensors file or a folder of one.

    Args:
        name_or_path: Name of a shipped model ("doap-128"); name of a handcrafted baseline ("rootsift"); path of
            weights with their card ("out/demo/doap-demo-128/weights.safetensors"), or of a folder with
            `model.safetensors` and `config.json`; or path of the published weights of a baseline, which need no card.
            With @64 at its end, the same as with `dimensions=64`.
        device: Device of the returned model.
        fast: Whether to return the fastest form for inference on the device, see `optimize_for_inference`. False
            returns the network as trained, in float32: exact, trainable, and what `save` takes.
        int8: Whether to compute with 8-bit integers instead, on a CPU; needs onnxruntime and activation ranges on the
            card, see `doap calibrate`.
        dimensions: Length of the descriptor, in dimensions or bits, for a model whose prefixes were trained; by default
            the whole. See `Descriptor.truncate`.

    Returns:
        The model in eval mode. Descriptors of all forms of a model can be matched with each other.

    Raises:
        DoapError: For an unknown name, a missing or invalid card, weights that do not match the card or are not
            finite, a length that was not trained, two different lengths, or a device that is not available.

    Example:
        >>> import doap
        >>> model = doap.load("doap-demo-256b")
        >>> model.kind, model.network.dimensions
        ('binary', 256)
    """
    check_device(device)
    name = with_length(str(name_or_path), dimensions)
    base, length = split_length(name)
    model = _load_exact(base).eval()
    if length is not None:
        model = model.truncate(length)
    if int8:
        return _quantize(model, name).to(device)
    model = model.to(device)
    return optimize_for_inference(model) if fast else model


def _quantize(model: Descriptor, name: str) -> Descriptor:
    """Return the int8 form of a model, with the activation ranges on its card."""
    from doap.networks.int8 import quantize

    card = find_card(name)
    return quantize(model, card.activation_ranges if card else [])


def _load_exact(name_or_path: str) -> Descriptor:
    """Load a model in float32, as it was trained."""
    if name_or_path in list_baselines():
        return load_handcrafted(name_or_path)
    path = find_weights(name_or_path)
    if not card_path(path).exists() and (baseline := load_published(path)):
        return baseline
    return _load_with_card(path)


def _load_with_card(path: Path) -> Descriptor:
    card = read_card(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DoapError(f"{path}: cannot be read ({error.strerror})") from error
    if hashlib.sha256(content).hexdigest() != card.sha256:
        raise DoapError(f"{path}: its SHA-256 differs from that in {card_path(path).name}; copy both files again")
    try:
        weights = safetensors.torch.load(content)
    except SafetensorError as error:
        raise DoapError(f"{path}: not a safetensors file ({error})") from error
    shapes = {name: tuple(value.shape) for name, value in weights.items()}
    if shapes != shapes_of(card.architecture):  # checked first: a network of wrong width may not fit into memory
        raise DoapError(f"{path}: its tensors are not those of the architecture on its card")
    network = build_network(card.architecture)
    if network.input_size != card.input_size:
        raise DoapError(f"{path}: its network reads {network.input_size} pixels, but its card says {card.input_size}")
    load_weights(network, weights, path)
    return Descriptor(network, card.kind, card.extent, card.name, card.extents, card.prefixes)


def save(descriptor: Descriptor, path: str | Path, architecture: Architecture, origin: Origin | None = None) -> None:
    """Write the weights of a model to a .safetensors file, then its card beside it.

    Args:
        descriptor: Model to save.
        path: Path of the .safetensors file.
        architecture: Architecture that its network was built from.
        origin: Provenance for the card.

    Raises:
        DoapError: If its weights are not those of the architecture, as in forms for inference, or it is truncated and
            the architecture is not.
    """
    if isinstance(descriptor.network, InferenceNetwork):
        raise DoapError(f"{descriptor.name}: a fast model cannot be saved; load it with fast=False")
    if descriptor.network.dimensions != architecture.dimensions:
        raise DoapError(
            f"{descriptor.name}: has {descriptor.network.dimensions} dimensions or bits, but the architecture "
            f"{architecture.dimensions}"
        )
    shapes = {name: tuple(value.shape) for name, value in descriptor.network.state_dict().items()}
    if shapes != shapes_of(architecture):
        raise DoapError(
            f"{descriptor.name}: its tensors are not those of the architecture; load it with fast=False and "
            "int8=False, and give the architecture that it was built from"
        )
    content = serialize_weights(descriptor)
    path = Path(path)
    with atomic_file(path) as temporary:
        temporary.write_bytes(content)
    card = Card(
        name=descriptor.name,
        kind=descriptor.kind,
        architecture=architecture,
        input_size=descriptor.input_size,
        extent=descriptor.extent,
        extents=descriptor.extents,
        prefixes=list(descriptor.prefixes),
        sha256=hashlib.sha256(content).hexdigest(),
        origin=origin or Origin(),
    )
    write_card(path, card)


def serialize_weights(descriptor: Descriptor) -> bytes:
    """Return the content of the .safetensors file of a model."""
    tensors = {name: value.contiguous().cpu() for name, value in descriptor.network.state_dict().items()}
    return safetensors.torch.save(tensors)


def find_card(name_or_path: str) -> Card | None:
    """Return the card of the model that `load` loads by this name or path; None for a baseline without a card."""
    base, length = split_length(name_or_path)
    if base in list_baselines():
        return None
    path = find_weights(base)
    card = read_card(path) if card_path(path).exists() else None
    return card.truncate(length) if card and length is not None else card


def find_weights(name_or_path: str) -> Path:
    """Return the .safetensors file of the model that `load` loads by this name or path; of a prefix, that of the whole.

    Raises:
        DoapError: If there is no such model or file.
    """
    name_or_path, _ = split_length(name_or_path)
    if name_or_path in list_models():
        return WEIGHTS_FOLDER / f"{name_or_path}.safetensors"
    path = Path(name_or_path)
    try:
        is_folder = path.is_dir()
    except OSError as error:  # a name that is too long, or a folder that cannot be entered
        raise DoapError(f"{name_or_path}: cannot be opened ({error.strerror})") from error
    if path.suffix == ".safetensors" and path.is_file():
        return path
    if is_folder:
        missing = [name for name in (HUB_WEIGHTS, HUB_CARD) if not (path / name).is_file()]
        if missing:
            raise DoapError(f"{path}: not the folder of a model; it has no {' and no '.join(missing)}")
        return path / HUB_WEIGHTS
    if path.exists():
        raise DoapError(f"{path}: weights must be a .safetensors file; other formats are not read, see doap convert")
    available = f"{', '.join(list_models())}; baselines: {', '.join(list_baselines())}"
    raise DoapError(f"{name_or_path}: no such file, and no model of this name (available: {available})")
