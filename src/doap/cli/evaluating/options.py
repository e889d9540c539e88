"""Options of the benchmark commands, and the function that runs any benchmark."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from doap.cli.console import choose_device, say, step_bar
from doap.cli.table import print_table

if TYPE_CHECKING:
    from doap.evaluation.harness.benchmark import Benchmark
    from doap.evaluation.harness.methods import Method

DEFAULT_BASELINES = ("sift", "rootsift")

Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL",
        show_default=False,
        help="Shipped models, paths of weights, or baselines such as sift. NAME@64 is the prefix of 64 dimensions or "
        "bits of a nested model. By default the shipped models, SIFT and RootSIFT.",
    ),
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write settings and all scores to this file.")]
CsvFile = Annotated[Path | None, typer.Option("--csv", help="Write all scores to this file, as a table.")]
FigureFile = Annotated[Path | None, typer.Option("--figure", help="Draw the result to this file.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Ignore cached descriptors and describe again.")]


@dataclass(frozen=True)
class Outputs:
    """Files to write a result to; None writes nothing.

    Raises:
        DoapError: If one of them cannot be written; before any work is done.
    """

    json: Path | None
    csv: Path | None
    figure: Path | None

    def __post_init__(self) -> None:
        from doap.errors import DoapError
        from doap.files import check_figure_format, check_output

        if self.json and self.csv and self.json.resolve() == self.csv.resolve():
            raise DoapError(f"--csv {self.csv}: is the file of --json, which would be replaced; give another one")
        for path in filter(None, (self.json, self.csv)):
            check_output(path)
        if self.figure:
            check_figure_format(self.figure)


def open_models(
    models: Sequence[str] | None,
    device: str | None,
    no_cache: bool,
    extent: float | None = None,
    detector: str = "",
) -> "list[Method]":
    """Open the methods that the options request; see `open_methods`."""
    from doap.evaluation.harness.cache import DescriptorCache
    from doap.evaluation.harness.methods import open_methods
    from doap.networks.registry import list_models

    specs = list(models or [*list_models(), *DEFAULT_BASELINES])
    return open_methods(specs, choose_device(device), extent, DescriptorCache(overwrite=no_cache), detector)


def run_benchmark(benchmark: "Benchmark", methods: "Sequence[Method]", outputs: Outputs) -> None:
    """Run a benchmark: show progress, print its tables, and write the requested files."""
    from doap.evaluation.harness.training_sets import methods_that_saw

    with step_bar() as progress:
        result = benchmark.evaluate(methods, progress)
    for table in benchmark.tables(result):
        print_table(table)
    if "rule" in result.settings:
        say(str(result.settings["rule"]))
    if seen := methods_that_saw(result):
        say(f"trained on test sequences, so that these figures are no test: {', '.join(seen)}", style="yellow")
    for line in result.settings.get("left out", ()):
        say(f"left out: {line}", style="yellow")
    if outputs.json:
        result.write_json(outputs.json)
        say(f"written to {outputs.json}")
    if outputs.csv:
        result.write_csv(outputs.csv)
        say(f"written to {outputs.csv}")
    if outputs.figure:
        benchmark.draw(result, outputs.figure)
        say(f"drawn in {outputs.figure}")
