"""`doap eval hpatches`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress as Bars

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
from doap.errors import DoapError
from doap.evaluation.harness.result import Result
from doap.evaluation.hpatches.benchmark import RULE, TASKS, HPatchesTest, PatchDescriber, evaluate, open_test
from doap.evaluation.hpatches.csv_descriptors import CsvDescriptors, write_descriptors
from doap.evaluation.hpatches.figure import draw_hpatches
from doap.evaluation.hpatches.tables import hpatches_tables
from doap.networks.registry import DEFAULT_MODEL
from doap.types import Progress

EXAMPLE = f"Example: doap eval hpatches --data hpatches/ --split a --models {DEFAULT_MODEL} rootsift --json scores.json"


def hpatches(
    data: Annotated[Path, typer.Option(help="A folder of sequences in the official format, or one sequence.")],
    models: Models = None,
    descriptors: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR …", help="Descriptors made elsewhere, as NAME/SEQUENCE/ref.csv …; one a row."),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="a, b, c, full, illum or view: its test sequences. All there are by default.")
    ] = None,
    tasks: Annotated[list[str] | None, typer.Option(metavar="TASK …", help=f"Some of {', '.join(TASKS)}.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of task lists that are not there and are drawn.")] = 0,
    export: Annotated[
        Path | None, typer.Option(help="Write the models' descriptors here, for the official benchmark.")
    ] = None,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    figure: FigureFile = None,
    device: Device = None,
    fresh: NoCache = False,
) -> None:
    """Verification, matching and retrieval on HPatches, at easy, hard and tough.

    Figures are percent by the official rule, as published ones are, and beside them by the fair one: true Average
    Precision in which ties have no order.
    """
    check_outputs(figure)
    methods = methods_from(models, device, fresh) if models or not descriptors else []
    read = [CsvDescriptors(folder) for folder in descriptors or []]
    describers: list[PatchDescriber] = [*methods, *read]
    _check_names(describers, export, [method.name for method in methods])
    with counting_bar() as bars:
        begin = _beginner(bars)
        test = open_test(data, split, tasks or TASKS, seed, begin("converting"))
        result = evaluate(test, describers, choose_device(device), begin)
        for method in methods if export else []:
            told = begin(f"writing, {method.name}")
            described = method.describe_patches(test.selection)
            write_descriptors(_home(export, method.name), test.patches, described, told)
    _show(result, test)
    if export:
        say(f"descriptors written to {export}")
    write_outputs(result, json_file, csv_file, figure, draw_hpatches)


def _check_names(describers: Sequence[PatchDescriber], export: Path | None, written: Sequence[str]) -> None:
    """Refuse what would fail after hours of work."""
    names = [describer.name for describer in describers]
    for name in names:
        if names.count(name) > 1:
            raise DoapError(f"two descriptors are called {name}; rename a folder of --descriptors")
    for name in written if export else []:
        if _home(export, name).exists():
            raise DoapError(f"{_home(export, name)}: exists already; remove it or choose another --export")


def _home(export: Path | None, name: str) -> Path:
    """Where the descriptors of a model go; a model named by its path becomes one folder."""
    return (export or Path()) / name.strip("/").replace("/", "_")


def _beginner(bars: Bars) -> Callable[[str], Progress]:
    """A bar for each piece of work."""

    def begin(work: str) -> Progress:
        task = bars.add_task(work, total=None, visible=False)

        def tell(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total, visible=done < total)

        return tell

    return begin


def _show(result: Result, test: HPatchesTest) -> None:
    for table in hpatches_tables(result):
        show_table(table)
    say(RULE)
    if test.pairs:
        say(f"pairs: {test.pairs.origin}")
    if test.searches:
        say(f"queries and distractors: {test.searches.origin}")
    for line in test.left_out:
        say(f"left out: {line}", style="yellow")
