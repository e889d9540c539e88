"""`doap eval phototour`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import counting_bar, say
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
from doap.evaluation.phototour.benchmark import RULE, evaluate, find_scenes, open_test
from doap.evaluation.phototour.figure import draw_phototour
from doap.evaluation.phototour.tables import phototour_table

EXAMPLE = (
    "Example: doap eval phototour --data data --models runs/doap-liberty/weights.safetensors "
    "runs/doap-notredame/weights.safetensors sift --json phototour.json"
)


def phototour(
    data: Annotated[Path, typer.Option(metavar="DIR", help="An official folder, or one that holds several.")],
    models: Models = None,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    figure: FigureFile = None,
    device: Device = None,
    fresh: NoCache = False,
) -> None:
    """Tell matching pairs of patches from others on UBC Phototour: FPR95 on the official pairs, the paper's Table 1.

    A model is not tested on the scene that it was trained on, by its card or by the end of its name. Models whose
    names differ in the scene alone (doap-liberty, doap-notredame) are one row.
    """
    check_outputs(figure)
    scenes = find_scenes(data)
    methods = methods_from(models, device, fresh)
    with counting_bar() as bar:
        task = bar.add_task("", total=None)

        def show(doing: str, done: int, total: int) -> None:
            bar.update(task, description=doing, completed=done, total=total)

        tests = {scene: open_test(folder, partial(show, f"converting {scene}")) for scene, folder in scenes.items()}
        result = evaluate(tests, methods, str(data), show)
    show_table(phototour_table(result))
    say(RULE)
    write_outputs(result, json_file, csv_file, figure, draw_phototour)
