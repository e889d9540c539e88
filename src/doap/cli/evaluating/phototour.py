"""`doap eval phototour`."""

from pathlib import Path
from typing import Annotated

import typer

from doap.cli.evaluating.options import (
    CsvFile,
    Device,
    FigureFile,
    JsonFile,
    Models,
    NoCache,
    Outputs,
    open_models,
    run_benchmark,
)

EXAMPLE = (
    "Example: doap eval phototour runs/doap-liberty/weights.safetensors runs/doap-notredame/weights.safetensors sift "
    "--data data --json phototour.json"
)


def phototour(
    data: Annotated[Path, typer.Option(metavar="DIR", help="Official folder of a scene, or a folder of several.")],
    models: Models = None,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    figure: FigureFile = None,
    device: Device = None,
    no_cache: NoCache = False,
) -> None:
    """Evaluate patch verification on UBC Phototour: FPR95 on the official pairs, Table 1 of the paper.

    A model is not tested on scenes that it was trained on, according to its card or the end of its name. Models
    whose names differ only in the scene (doap-liberty, doap-notredame) are one row.
    """
    from doap.evaluation.phototour.benchmark import Phototour

    outputs = Outputs(json_file, csv_file, figure)
    run_benchmark(Phototour(data), open_models(models, device, no_cache), outputs)
