"""`doap eval romepatches`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import choose_device, counting_bar, say
from doap.cli.eval_options import (
    CsvFile,
    Device,
    FigureFile,
    JsonFile,
    Models,
    NoCache,
    check_outputs,
    methods_from,
    show_table,
    write_outputs,
)
from doap.evaluation.romepatches.benchmark import RULE, evaluate, open_halves
from doap.evaluation.romepatches.figure import draw_romepatches
from doap.evaluation.romepatches.tables import romepatches_table
from doap.networks.registry import DEFAULT_MODEL

EXAMPLE = (
    f"Example: doap eval romepatches --data data/romepatches --models {DEFAULT_MODEL} sift --json romepatches.json"
)


def romepatches(
    data: Annotated[Path, typer.Option(metavar="DIR", help="The official folder, with its .mat files.")],
    models: Models = None,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    figure: FigureFile = None,
    device: Device = None,
    fresh: NoCache = False,
) -> None:
    """Find the other patches of the same point in RomePatches: retrieval mAP on both halves, the paper's Table 2.

    Every patch is a query that ranks all others of its half.
    """
    check_outputs(figure)
    methods = methods_from(models, device, fresh)
    with counting_bar() as bar:
        task = bar.add_task("", total=None)

        def show(doing: str, done: int, total: int) -> None:
            bar.update(task, description=doing, completed=done, total=total)

        patches = open_halves(data, partial(show, "converting"))
        result = evaluate(patches, methods, str(data), choose_device(device), show)
    show_table(romepatches_table(result))
    say(RULE)
    write_outputs(result, json_file, csv_file, figure, draw_romepatches)
