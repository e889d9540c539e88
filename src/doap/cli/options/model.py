"""Options of the commands that describe with a model, and its loading."""

from typing import TYPE_CHECKING, Annotated

import typer

from doap.choices import FrameShape, Precision
from doap.cli.console import choose_device
from doap.parallel.engine import EngineName

if TYPE_CHECKING:
    from doap.networks.descriptor import Descriptor

ModelOption = Annotated[
    str, typer.Option(help="Shipped model, or path of a .safetensors file; NAME@64 is NAME with --dimensions 64.")
]
DimensionsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Shorter descriptors of a nested model: their length in dimensions or bits."),
]
DeviceOption = Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")]
PrecisionOption = Annotated[
    Precision,
    typer.Option(
        help="fast: the fastest floating-point type of the device; exact: float32, as trained; int8: 8-bit integers, "
        "on a CPU."
    ),
]
FramesOption = Annotated[
    FrameShape,
    typer.Option(
        help="detected: as detected; upright: not rotated, for cameras that are not rolled; baumberg: with affine "
        "shape; learned: corrected by a network, for views from very different directions."
    ),
]


def choose_model_device(name: str | None, precision: Precision, engine: EngineName = "local") -> str:
    """Return the requested device; by default the CPU for int8 and workers of Ray, else the GPU if there is one."""
    return "cpu" if name is None and (precision == "int8" or engine == "ray") else choose_device(name)


def load_model(name_or_path: str, device: str | None, precision: Precision) -> "Descriptor":
    """Load a model by the values of the options above.

    Raises:
        DoapError: If the model or the device does not exist, or the model has no int8 form.
    """
    from doap.networks.registry import load

    return load(
        name_or_path, choose_model_device(device, precision), fast=precision == "fast", int8=precision == "int8"
    )
