"""`doap eval romepatches`."""

from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import choose_device
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
from doap.networks import DEFAULT_MODEL

EXAMPLE = f"Example: doap eval romepatches {DEFAULT_MODEL} sift --data data/romepatches --json romepatches.json"


def romepatches(
    data: Annotated[Path, typer.Option(metavar="DIR", help="Official folder, with its .mat files.")],
    models: Models = None,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    figure: FigureFile = None,
    device: Device = None,
    no_cache: NoCache = False,
) -> None:
    """Evaluate patch retrieval on RomePatches: mAP on both halves, Table 2 of the paper.

    Every patch is a query that ranks all others of its half.
    """
    from doap.evaluation.romepatches.benchmark import RomePatches

    outputs = Outputs(json_file, csv_file, figure)
    run_benchmark(RomePatches(data, choose_device(device)), open_models(models, device, no_cache), outputs)
