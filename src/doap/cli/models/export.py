"""`doap export`."""

from pathlib import Path
from typing import Annotated

import typer

from doap.choices import ExportFormat, ExportGraph, ExportPrecision
from doap.cli.console import say
from doap.cli.options.model import DimensionsOption
from doap.networks import with_length

EXAMPLE = "Example: doap export doap-128 -o doap-128.onnx"


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Shipped model, or path of a .safetensors file.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="File to write: .onnx, .pt2 (torch-export) or .pt (torchscript).")
    ],
    dimensions: DimensionsOption = None,
    format: Annotated[ExportFormat | None, typer.Option(help="Format; by default that of the suffix.")] = None,
    graph: Annotated[
        ExportGraph,
        typer.Option(help="Input: patches (N, H, W); or an image (H, W) and frames (N, 2, 3), ONNX only."),
    ] = "patches",
    precision: Annotated[
        ExportPrecision,
        typer.Option(
            help="Arithmetic of the network. int8: calibrated models, ONNX only; int8-without-vnni: the same for x86 "
            "CPUs without 8-bit dot products, where the results of int8 are wrong."
        ),
    ] = "fp32",
    extent: Annotated[
        float | None,
        typer.Option(help="Half the side of a patch in units of the frame's scale; by default the model's for dog."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that was not exported by doap.")] = False,
) -> None:
    """Export a model to ONNX, torch.export or TorchScript, to run without doap or without Python.

    Resizing, normalisation, Spatial Transformer, network and L2 normalisation or bit packing are inside the graph.
    All sizes are dynamic. docs/bridges/onnx.md describes the inputs and outputs.
    """
    from doap.bridges.onnx import export_model

    name = with_length(model, dimensions)
    metadata = export_model(name, output, format=format, graph=graph, precision=precision, extent=extent, force=force)
    kind = "bits" if metadata["kind"] == "binary" else "dimensions"
    inputs = "patches" if graph == "patches" else f"image and frames, extent {float(metadata['extent']):g}"
    megabytes = output.stat().st_size / 1e6
    say(f"{output}: {metadata['name']}, {inputs} to {metadata['dimensions']} {kind}, {precision}, {megabytes:.1f} MB")
    if precision == "int8":
        from doap.networks.int8.operands import sums_are_exact

        if not sums_are_exact("u8s8"):
            say(
                "this CPU has no 8-bit dot products (VNNI) and computes wrong descriptors with this file; "
                "for such CPUs use --precision int8-without-vnni",
                style="yellow",
            )
