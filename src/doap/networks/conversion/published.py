"""Our models from weights that others published."""

import hashlib
from pathlib import Path

from doap.choices import DEFAULT_EXTENT
from doap.errors import DoapError
from doap.networks.architecture import build_network, shapes_of
from doap.networks.baselines import load_published
from doap.networks.card import Origin, card_path
from doap.networks.conversion.layouts import Converted, convert_tensors
from doap.networks.conversion.matconvnet import convert_matlab
from doap.networks.conversion.output import check_output
from doap.networks.conversion.reading import check_size, read_tensors
from doap.networks.descriptor import Descriptor
from doap.networks.network import load_weights
from doap.networks.registry import save

KNOWN = "HardNet, HardNet-PS, SOSNet and HyNet; L2-Net as .mat"


def convert(
    source: Path,
    output: Path,
    name: str | None = None,
    extent: float = DEFAULT_EXTENT,
    licence: str = "",
    data: str = "",
    centre_surround: bool = False,
) -> Path:
    """Write a real-valued model with the weights of a published checkpoint, in the layouts of `layouts`, `matconvnet`.

    Args:
        source: Checkpoint of PyTorch (.pth and other names), .safetensors file without a card, or .mat file of L2-Net.
        output: The .safetensors file to create; its card is written beside it.
        name: Name of the model; by default that of the file.
        extent: Half the side of the training patches, in units of the frame's scale.
        licence: Licence of the weights, for the card.
        data: Training data, for the card.
        centre_surround: Convert a .mat file of L2-Net, which has two towers, to CS-L2Net instead of L2Net.

    Returns:
        `output`.

    Raises:
        DoapError: If the file cannot be read without executing code, is not of a known network, or has values that are
            not finite; or if `output` exists, or the name is that of a prefix.
    """
    check_output(output, name)
    check_size(source)
    if source.suffix.lower() == ".mat":
        converted = convert_matlab(source, centre_surround)
    elif centre_surround:
        raise DoapError(f"{source}: only the .mat files of L2-Net have a network of the centre")
    else:
        converted = _convert_tensors(source)
    shapes = {key: tuple(value.shape) for key, value in converted.tensors.items()}
    if shapes != shapes_of(converted.architecture):  # checked first: a network of wrong width may not fit into memory
        raise DoapError(f"{source}: its tensors have not the shapes of {converted.layout}")
    network = build_network(converted.architecture)
    load_weights(network, converted.tensors, source)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    history = f"converted from the layout of {converted.layout}: {source.name}, SHA-256 {digest}"
    model = Descriptor(network, "real", extent, name or output.stem)
    save(model, output, converted.architecture, Origin(licence=licence, data=data, notes={"conversion": history}))
    return output


def _convert_tensors(source: Path) -> Converted:
    if source.suffix == ".safetensors":
        if card_path(source).exists():
            raise DoapError(f"{source}: has a card, so it is a model already; only --binarise converts it")
        if load_published(source):
            raise DoapError(f"{source}: a baseline that needs no card; use it as it is")
    converted = convert_tensors(read_tensors(source))
    if converted is None:
        raise DoapError(f"{source}: its tensors are not those of a known network ({KNOWN})")
    return converted
