"""`doap report`."""

from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import say

EXAMPLE = "Example: doap report phototour.json oxford.json runs/lists/sweep.json alignment.png -o report"


def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULTS",
            help="Files of doap eval --json, sweep.json, alignment*.png, label-mining*.png, patches*.png, or folders.",
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for index.html and its pictures.")],
    unavailable: Annotated[
        list[str] | None,
        typer.Option(metavar="SECTION", help="Benchmark whose data set cannot be obtained; repeatable."),
    ] = None,
) -> None:
    """Write one HTML page with the tables and figures of the paper, measured results beside published ones.

    A section without results gives the commands that produce them.
    """
    from doap.report.gather import gather
    from doap.report.page import write_report

    gathered = gather(results)
    page = write_report(gathered, output, unavailable or [])
    for file in gathered.left_out:
        say(f"left out: {file} is not a result", style="yellow")
    counts = f"results {len(gathered.results)}, sweeps {len(gathered.sweeps)}, pictures {len(gathered.pictures)}"
    say(f"written to {page}: {counts}")
