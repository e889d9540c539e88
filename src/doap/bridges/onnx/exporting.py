"""Export of a model to a file."""

import json
from copy import deepcopy
from pathlib import Path
from typing import get_args

from doap.bridges.onnx.torch_formats import export_program, export_script, is_exported_by_torch
from doap.choices import DEFAULT_DETECTOR, ExportFormat, ExportGraph, ExportPrecision
from doap.errors import DoapError, check_choice, check_path
from doap.extents import check_extent
from doap.files import atomic_file
from doap.networks import split_length
from doap.networks.baselines import list_baselines
from doap.networks.card import Card
from doap.networks.descriptor import Descriptor
from doap.networks.inference import fold_normalisation
from doap.networks.registry import find_card, load
from doap.version import __version__

SUFFIXES: dict[ExportFormat, str] = {"onnx": ".onnx", "torch-export": ".pt2", "torchscript": ".pt"}


def export_model(
    model: str | Path,
    output: str | Path,
    *,
    format: ExportFormat | None = None,
    graph: ExportGraph = "patches",
    precision: ExportPrecision = "fp32",
    extent: float | None = None,
    force: bool = False,
) -> dict[str, str]:
    """Export a model to a file that runs without doap.

    Args:
        model: Name of a shipped model, or path of a .safetensors file.
        output: File to write: .onnx, .pt2 (`torch.export`) or .pt (TorchScript).
        format: Format; by default that of the suffix of `output`.
        graph: "patches": `patches`, (N, H, W) uint8 of any size, to `descriptors`. "image", ONNX only: `image`, (H, W)
            uint8, and `frames`, (N, 2, 3) float32 in pixels, to `descriptors`.
        precision: Arithmetic of the network; inputs and outputs are the same. "int8" is for ONNX only: on ARM, and on
            x86 with VNNI (8-bit dot products). "int8-without-vnni" is exact on every CPU, but slower on those.
        extent: Half the side of a patch in units of the frame's scale, for the graph "image"; by default that of the
            model for DoG keypoints.
        force: Whether to replace a file that was not exported by doap.

    Returns:
        Metadata of the file: name, version, licence, kind, graph, precision, input size, extent, card.

    Raises:
        DoapError: For an unknown or handcrafted model, a combination that does not exist, or a file that must not be
            replaced.

    Example:
        >>> from doap.bridges.onnx import export_model
        >>> export_model("doap-128", "doap-128.onnx")["kind"]  # doctest: +SKIP
        'real'
    """
    check_path("the model", model)
    check_path("the file", output)
    output = Path(output)
    check_choice("graph", graph, get_args(ExportGraph))
    check_choice("precision", precision, get_args(ExportPrecision))
    chosen, is_int8 = _choose_format(output, format), precision.startswith("int8")
    if chosen != "onnx" and (graph == "image" or is_int8):
        option = "the image graph" if graph == "image" else "int8"
        raise DoapError(f"{output}: {option} is for ONNX only; export to a file NAME.onnx")
    if extent is not None and graph != "image":
        raise DoapError("an extent is for the image graph only: patches have been extracted already")
    if extent is not None:
        check_extent(extent)
    _check_target(output, chosen, force)
    if split_length(str(model))[0] in list_baselines():
        raise DoapError(f"{model}: a handcrafted baseline has no network to export")
    descriptor, card = load(model, fast=False), find_card(str(model))
    extent = descriptor.extent_for(DEFAULT_DETECTOR) if extent is None else float(extent)
    metadata = _metadata(descriptor, card, graph, precision, extent)
    with atomic_file(output) as temporary:
        if chosen == "onnx":
            from doap.bridges.onnx.graphs import build_onnx

            prepared = descriptor if is_int8 else prepare(descriptor, precision)
            ranges = card.activation_ranges if card else []
            content = build_onnx(prepared, extent if graph == "image" else None, precision, ranges, metadata)
        else:
            export = export_script if chosen == "torchscript" else export_program
            content = export(prepare(descriptor, precision), json.dumps(metadata))
        temporary.write_bytes(content)
    return metadata


def prepare(model: Descriptor, precision: ExportPrecision) -> Descriptor:
    """Return a copy of a model for inference: batch normalisation is folded, weights are float32 or float16."""
    network = fold_normalisation(deepcopy(model.network).eval().double()).requires_grad_(False)
    network = network.half() if precision == "fp16" else network.float()
    return model.with_network(network).eval()


def _choose_format(output: Path, format: ExportFormat | None) -> ExportFormat:
    """Return the format of the suffix, and check that it is the one asked for."""
    if format is not None:
        check_choice("format", format, SUFFIXES)
    formats = {suffix: name for name, suffix in SUFFIXES.items()}
    chosen = formats.get(output.suffix)
    if format is not None and chosen != format:
        raise DoapError(f"{output}: a file of format {format} must end in {SUFFIXES[format]}")
    if chosen is None:
        raise DoapError(f"{output}: must end in {', '.join(f'{suffix} ({name})' for suffix, name in formats.items())}")
    return chosen


def _check_target(output: Path, format: ExportFormat, force: bool) -> None:
    """Raise DoapError if the file exists and was not exported by doap."""
    if output.is_dir():
        raise DoapError(f"{output}: is a folder; choose another name")
    if not output.exists() or force:
        return
    if format == "onnx":
        from doap.bridges.onnx.graphs import is_exported_onnx

        is_ours = is_exported_onnx(output)
    else:
        is_ours = is_exported_by_torch(output)
    if not is_ours:
        raise DoapError(f"{output}: exists and was not exported by doap; choose another name, or --force replaces it")


def _metadata(
    model: Descriptor, card: Card | None, graph: ExportGraph, precision: ExportPrecision, extent: float
) -> dict[str, str]:
    return {
        "name": model.name,
        "doap_version": __version__,
        "licence": card.origin.licence if card else "",
        "kind": model.kind,
        "dimensions": str(model.network.dimensions),
        "graph": graph,
        "precision": precision,
        "input_size": str(model.input_size),
        "extent": str(extent),
        "card": card.model_dump_json() if card else "",
    }
