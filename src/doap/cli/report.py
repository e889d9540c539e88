"""`doap report`."""

from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import say
from doap.report.gather import gather
from doap.report.page import write_report

EXAMPLE = "Example: doap report phototour.json oxford.json runs/lists/sweep.json alignment.png -o report"


def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULTS …",
            help="Files of doap eval --json, sweep.json, alignment*.png and label-mining*.png, or folders of them.",
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for index.html and its pictures.")],
    unavailable: Annotated[
        list[str] | None,
        typer.Option(metavar="SECTION …", help="Benchmarks whose data set cannot be had, so that the page says so."),
    ] = None,
) -> None:
    """Gather results into one page that mirrors the paper: its tables and figures, ours beside the published ones.

    What was not measured is said, with the command that measures it.
    """
    gathered = gather(results)
    page = write_report(gathered, output, unavailable or [])
    for file in gathered.left_out:
        say(f"left out: {file} is no result", style="yellow")
    counts = f"results {len(gathered.results)}, sweeps {len(gathered.sweeps)}, pictures {len(gathered.pictures)}"
    say(f"written to {page}: {counts}")
