"""`doap demo`."""

import time
from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import say, say_overlaps, training_bar
from doap.cli.table import print_table

EXAMPLE = "Example: doap demo -o out/demo"


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the page and the runs.")] = Path(
        "out/demo"
    ),
) -> None:
    """Match an image pair, then train two descriptors on embedded photos and compare them with SIFT.

    Nothing is downloaded: the photos come with scikit-image and scikit-learn. A 128-d real-valued and a 256-bit binary
    descriptor are trained from scratch by Average Precision and match photos that they were not trained on.
    """
    start = time.monotonic()  # the time to load libraries counts
    from doap.demo.page import verdict, write_page
    from doap.demo.run import run_demo
    from doap.evaluation.image_pairs.warped import mean_table

    with training_bar() as bar:
        task = bar.add_task("", total=1.0, status="")

        def on_step(step: str) -> None:
            say(f"[{time.monotonic() - start:4.0f} s] {step}")
            bar.reset(task, description=step, status="")

        result = run_demo(output, on_step, lambda done, text: bar.update(task, completed=done, status=text))
    say_overlaps()
    page = write_page(result, output, time.monotonic() - start)
    print_table(mean_table(result.evaluation.means, result.evaluation.bytes))
    say(verdict(result))
    say(f"{time.monotonic() - start:.0f} s in total; page: {page}")
