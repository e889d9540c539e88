"""Binary models from real-valued ones.

The authors of L2-Net make binary descriptors of L2-Net and CS-L2-Net, the baselines of the paper's binary results, by
the sign of the real-valued output: a bit is set where it is positive (`matlab/example.m` of
github.com/yuruntian/L2-Net). They read it after the final local response normalisation, which scales each descriptor by
a positive number: the signs are those of the activations.
"""

from pathlib import Path

from doap.errors import DoapError
from doap.networks.card import add_conversion, read_card, write_card
from doap.networks.conversion.output import check_output
from doap.networks.descriptor import Descriptor
from doap.networks.registry import find_card, load, save


def binarise(source: str | Path, output: Path, name: str | None = None) -> Path:
    """Write the binary model whose bits are the signs of a real-valued model's activations.

    The network, the extents and the activation ranges are unchanged. Of the provenance, the figures are dropped, since
    they were measured with the real-valued descriptors.

    Args:
        source: Real-valued model with a card: a name or path that `doap.load` accepts.
        output: The .safetensors file to create; its card is written beside it.
        name: Name of the new model; by default that of the file.

    Returns:
        `output`.

    Raises:
        DoapError: If the model is binary already, has no card, or its dimensions do not fill whole bytes; or if
            `output` exists, or the name is that of a prefix.

    Example:
        >>> import doap, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model = doap.load(binarise("doap-demo-128", Path(folder) / "demo-128b.safetensors"))
        >>> model.name, model.kind, model.bytes
        ('demo-128b', 'binary', 16)
    """
    check_output(output, name)
    model, card = load(source, fast=False), find_card(str(source))
    if card is None:
        raise DoapError(f"{source}: a baseline without a card; only models with a card can be binarised")
    if model.kind == "binary":
        raise DoapError(f"{source}: binary already; give a real-valued model")
    dimensions = model.network.dimensions
    if dimensions % 8:
        raise DoapError(f"{source}: {dimensions} dimensions give no whole bytes; give a model with a multiple of 8")
    step = f"binarised by the sign of the activations, from {card.name}, SHA-256 {card.sha256}"
    origin = add_conversion(card.origin, step)
    prefixes = [prefix for prefix in model.prefixes if prefix % 8 == 0]
    binary = Descriptor(model.network, "binary", model.extent, name or output.stem, model.extents, prefixes)
    save(binary, output, card.architecture, origin)
    write_card(output, read_card(output).model_copy(update={"activation_ranges": card.activation_ranges}))
    return output
