"""`doap convert`."""

from pathlib import Path
from typing import Annotated

import typer

from doap.choices import DEFAULT_EXTENT
from doap.cli.console import say
from doap.errors import DoapError
from doap.extents import check_extent

EXAMPLE = "Example: doap convert HardNet++.pth -o hardnet.safetensors --licence MIT"

_EXTENT = f"extent (--extent; {DEFAULT_EXTENT:g} by default)"


def convert(
    source: Annotated[str, typer.Argument(metavar="WEIGHTS", help="Published weights; with --binarise a model.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The .safetensors file to create.")],
    binarise: Annotated[
        bool, typer.Option("--binarise", help="Make a binary model of a real-valued one: its bits are the signs.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="Name of the new model; by default that of the file.")] = None,
    extent: Annotated[
        float | None, typer.Option(help="Half the side of a training patch in units of its frame's scale.")
    ] = None,
    licence: Annotated[str, typer.Option(help="Licence of the weights, for the card.")] = "",
    centre_surround: Annotated[
        bool, typer.Option("--centre-surround", help="Convert both networks of a .mat file, to CS-L2Net.")
    ] = False,
    data: Annotated[str, typer.Option(help="Training data, for the card.")] = "",
) -> None:
    """Convert weights from elsewhere, or make a binary model of a real-valued one.

    Reads the weights of HardNet, SOSNet, HyNet and L2-Net as their authors publish them: checkpoints of PyTorch,
    .safetensors, and the .mat files of L2-Net. Nothing in them is executed. The new model has a card beside it and is
    used like any other.
    """
    from doap.networks import conversion
    from doap.networks.card import read_card

    if binarise:
        if extent is not None or licence or data or centre_surround:
            raise DoapError("--binarise takes --name only; everything else is kept from the card of the model")
        conversion.binarise(source, output, name)
    else:
        factor = DEFAULT_EXTENT if extent is None else check_extent(extent, "--extent")
        conversion.convert(Path(source), output, name, factor, licence, data, centre_surround)
    say(f"{output}: {read_card(output).origin.notes['conversion']}")
    given = {"training data (--data)": data, "licence (--licence)": licence, _EXTENT: extent}
    unknown = [fact for fact, value in given.items() if not value]
    if unknown and not binarise:
        say(f"not in the weights, and not given: {', '.join(unknown)}")
