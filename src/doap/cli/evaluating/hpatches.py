"""`doap eval hpatches`."""

from pathlib import Path
from typing import Annotated

import typer

from doap.choices import MAX_SEED
from doap.cli.console import choose_device, say, step_bar
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
from doap.errors import DoapError
from doap.networks import DEFAULT_MODEL

EXAMPLE = f"Example: doap eval hpatches {DEFAULT_MODEL} rootsift --data hpatches/ --split a --json scores.json"


def hpatches(
    data: Annotated[Path, typer.Option(help="Folder of sequences in the official format, or one sequence.")],
    models: Models = None,
    descriptors: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR", help="Descriptors computed elsewhere, as DIR/SEQUENCE/ref.csv …, one per row; repeatable."
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="a, b, c, full, illum or view: use only its test sequences. All sequences by default."),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(metavar="TASK", help="verification, matching or retrieval; repeatable. By default all."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="Seed of task lists that are not present and are sampled.")
    ] = 0,
    export: Annotated[
        Path | None, typer.Option(help="Write the models' descriptors to this folder, for the official benchmark.")
    ] = None,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    figure: FigureFile = None,
    device: Device = None,
    no_cache: NoCache = False,
) -> None:
    """Evaluate verification, matching and retrieval on HPatches, at easy, hard and tough.

    Scores are in percent, by the official rule, for comparison with published ones, and by the tie-aware rule: the mean
    Average Precision over all orders of ties. With --descriptors and no model, only those are evaluated.
    """
    from doap.evaluation.hpatches.benchmark import HPatches
    from doap.evaluation.hpatches.task_data import TASKS

    outputs = Outputs(json_file, csv_file, figure)
    benchmark = HPatches(data, split, tasks or TASKS, seed, descriptors or (), choose_device(device))
    methods = open_models(models, device, no_cache) if models or not descriptors else []
    if export and not methods:
        raise DoapError("--export writes the descriptors of models; name one")
    if export:
        with step_bar() as progress:
            benchmark.export(methods, export, progress)
        say(f"descriptors written to {export}")
    run_benchmark(benchmark, methods, outputs)
