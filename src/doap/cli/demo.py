"""`doap demo`."""

import math
import time
from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import say, say_overlaps, training_bar
from doap.cli.eval_options import print_table
from doap.demo.page import score_table, verdict, write_page
from doap.demo.run import Progress, run_study

EXAMPLE = "Example: doap demo -o out/demo"


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the page and the runs.")] = Path(
        "out/demo"
    ),
) -> None:
    """Train two descriptors on embedded photos and judge them beside SIFT and what ships: about 4 minutes on a Xeon.

    No download: the photos come inside scikit-image and scikit-learn. A 128-d real-valued and a 256-bit
    binary L2Net are trained from scratch by Average Precision, then match photos they never saw.
    """
    start = time.monotonic()
    with training_bar() as bar:
        task = bar.add_task("", total=1.0, status="")

        def begin(step: str) -> None:
            say(f"[{time.monotonic() - start:4.0f} s] {step}")
            bar.reset(task, description=step, status="")

        def so_far(done: float, loss: float) -> None:
            bar.update(task, completed=done, status="" if math.isnan(loss) else f"loss {loss:.3f}")

        study = run_study(output, Progress(begin, so_far))
    say_overlaps()
    page = write_page(study, output, time.monotonic() - start)
    print_table(score_table(study))
    say(verdict(study))
    say(f"{time.monotonic() - start:.0f} s in all; the page: {page}")
