"""`doap data hpatches`: HPatches folders from image sequences."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from doap.cli.console import counting_bar, say
from doap.datasets.build.hpatches_format import Made, Settings, make_hpatches, missing_sequences
from doap.datasets.official.image_sequences import ImageSequence, find_sequences
from doap.errors import DoapError
from doap.images.jitter import LEVELS

EXAMPLE = "Example: doap data hpatches sequences/ -o sets/hpatches"


def hpatches(
    sequences: Annotated[
        list[Path],
        typer.Argument(metavar="SEQUENCES…", help="Image sequences with homographies, or folders of them."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to make, with one folder a sequence.")],
    points: Annotated[int, typer.Option(min=1, help="Points a sequence at most.")] = Settings.points,
    seed: Annotated[int, typer.Option(min=0, help="Fixes the choice of points and the jitter.")] = Settings.seed,
) -> None:
    """Make HPatches folders of image sequences: ref, easy, hard and tough strips in the official format.

    A run that was stopped goes on with the folders that are missing. Sequences that cannot be read or have no point
    are named at the end and left out.
    """
    found, failures = _find(sequences)
    settings = Settings(points, seed)
    if not found:
        raise DoapError("; ".join(failures))
    made: list[Made] = []
    missing = missing_sequences(found, output, settings)
    with counting_bar() as bar:
        task = bar.add_task("making folders", total=len(missing))
        for sequence in missing:
            try:
                made.append(make_hpatches(sequence, output, settings))
            except DoapError as error:
                failures.append(str(error))
            else:
                say(f"{output / sequence.name}: {made[-1].patches} patches a strip")
            bar.advance(task)
    if made:
        _summarise(made, output, len(found) - len(missing))
    for line in failures:
        say(f"left out: {line}", style="yellow")
    if not made:
        raise DoapError(f"{output}: no sequence could be added")


def _find(paths: list[Path]) -> tuple[list[ImageSequence], list[str]]:
    """Sequences at the paths and in folders of them, and what was wrong with others."""
    found: list[ImageSequence] = []
    failures: list[str] = []
    for path in paths:
        inside = sorted(p for p in path.iterdir() if p.is_dir()) if path.is_dir() else []
        for place in inside or [path]:
            try:
                found += find_sequences(place)
            except DoapError as error:
                failures.append(str(error))
    return found, failures


def _summarise(made: list[Made], output: Path, before: int) -> None:
    already = f", {before} were there already" if before else ""
    plural = "s" * (len(made) != 1)
    say(f"{len(made)} sequence{plural}, {sum(m.patches for m in made)} patches a strip in all, in {output}{already}")
    weights = [m.patches for m in made]
    for level in LEVELS:
        mean = np.average([m.overlaps[level] for m in made], weights=weights)
        say(f"{level} frames overlap the undisturbed ones by {mean:.3f} on average")
