"""What the benchmarks' verbs share: options, models given one after another, and writing what came out."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as RichTable
from typer.core import TyperCommand

import doap
from doap.cli.console import choose_device, say, tables
from doap.evaluation.harness.cache import DescriptorCache
from doap.evaluation.harness.methods import Method, open_methods
from doap.evaluation.harness.result import Result
from doap.evaluation.harness.table import Table
from doap.files import check_figure_format

DEFAULT_BASELINES = ("sift", "rootsift")

Models = Annotated[
    list[str] | None,
    typer.Option(
        "--models",
        metavar="A B C …",
        help="Shipped models, paths of weights, and peers (docs/peers.md). The shipped ones and SIFT by default.",
    ),
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the configuration and all figures here.")]
CsvFile = Annotated[Path | None, typer.Option("--csv", help="Write all figures as a table here.")]
FigureFile = Annotated[Path | None, typer.Option("--figure", help="Draw the result here.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")]
NoCache = Annotated[bool, typer.Option("--fresh", help="Describe anew what is remembered from earlier runs.")]


class ManyValues(TyperCommand):
    """A command whose repeatable options take several values at once: --models A B C."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat a repeatable option's name before each of the values that follow it."""
        several = {name for p in self.params if getattr(p, "multiple", False) for name in p.opts}
        spread: list[str] = []
        option = None  # whose values are being read
        for place, word in enumerate(args):
            if word.startswith("-"):
                option = word if word in several else None
                spread.append(word)
            elif option and args[place - 1] != option:
                spread += [option, word]
            else:
                spread.append(word)
        return super().parse_args(ctx, spread)


def methods_from(
    models: Sequence[str] | None, device: str | None, fresh: bool, extent: float | None = None, detector: str = ""
) -> list[Method]:
    """What `--models`, `--device` and `--fresh` ask for, and `--extent` and `--detector` where images are matched."""
    given = list(models or [*doap.list_models(), *DEFAULT_BASELINES])
    return open_methods(given, choose_device(device), extent, DescriptorCache(fresh=fresh), detector)


def check_outputs(figure: Path | None) -> None:
    """Refuse a figure's name that cannot be written, before the work is done."""
    if figure:
        check_figure_format(figure)


def write_outputs(
    result: Result,
    json_file: Path | None,
    csv_file: Path | None,
    figure: Path | None,
    draw: Callable[[Result, Path], None],
) -> None:
    """Write what was asked for, and say where it is."""
    if json_file:
        result.write_json(json_file)
        say(f"written to {json_file}")
    if csv_file:
        result.write_csv(csv_file)
        say(f"written to {csv_file}")
    if figure:
        draw(result, figure)
        say(f"drawn in {figure}")


def show_table(table: Table) -> None:
    """Print a table and its note; quoted rows are marked, and their sources named."""
    shown = RichTable(title=table.title or None, title_justify="left", header_style="bold")
    for place, column in enumerate(table.columns):
        shown.add_column(column, justify="left" if place < table.words else "right")
    for row in table.rows:
        shown.add_row(f"{row.cells[0]}†" if row.quoted else row.cells[0], *row.cells[1:])
    tables.print(shown)
    if table.note:
        say(table.note)
    if table.sources:
        say(f"† quoted, not measured: {'; '.join(table.sources)}")
