"""`doap data hpatches`: folders in the format of HPatches from image sequences."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from doap.choices import MAX_SEED, HPatchesNoise
from doap.cli.console import counting_bar, say
from doap.datasets.build.settings import HPatchesSettings
from doap.errors import DoapError, inflect

if TYPE_CHECKING:
    from doap.datasets.build.hpatches_format import FolderSummary
    from doap.datasets.official.image_sequences import ImageSequence

EXAMPLE = "Example: doap data hpatches sequences/ -o sets/hpatches"
DEFAULT = HPatchesSettings()


def hpatches(
    sequences: Annotated[
        list[Path],
        typer.Argument(metavar="SEQUENCES…", help="Image sequences with homographies, or folders of them."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to create, with one folder per sequence.")],
    points: Annotated[int, typer.Option(min=1, help="Maximum number of points per sequence.")] = DEFAULT.points,
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="Seed of the choice of points and of the noise.")
    ] = DEFAULT.seed,
    noise: Annotated[
        HPatchesNoise,
        typer.Option(
            help="Noise of the frames. overlap: frames overlap as the paper states. measured: rotation, scale and "
            "stretch as measured in official patches, about twice as strong."
        ),
    ] = DEFAULT.noise,
) -> None:
    """Make HPatches folders from image sequences: ref, easy, hard and tough strips in the official format.

    An interrupted run continues with the missing folders when it is started again. Sequences that cannot be read or
    have no points are skipped and listed at the end.
    """
    from doap.datasets.build.hpatches_format import make_hpatches, missing_sequences

    readable, failures = _find_sequences(sequences)
    settings = HPatchesSettings(points, seed, noise)
    if not readable:
        raise DoapError("; ".join(failures))
    summaries: list[FolderSummary] = []
    missing = missing_sequences(readable, output, settings)
    with counting_bar() as bar:
        task = bar.add_task("making folders", total=len(missing))
        for sequence in missing:
            try:
                summaries.append(make_hpatches(sequence, output, settings))
            except DoapError as error:
                failures.append(str(error))
            else:
                patches = summaries[-1].patches
                say(f"{output / sequence.name}: {patches} {inflect(patches, 'patch', 'patches')} per strip")
            bar.advance(task)
    if summaries:
        _summarise(summaries, output, len(readable) - len(missing))
    for line in failures:
        say(f"skipped: {line}", style="yellow")
    if not summaries:
        raise DoapError(f"{output}: no sequence could be added")


def _find_sequences(paths: list[Path]) -> tuple[list["ImageSequence"], list[str]]:
    """Return the sequences at the paths and in folders of them, and the errors of the others."""
    from doap.datasets.official.image_sequences import find_sequences, is_sequence

    sequences: list[ImageSequence] = []
    failures: list[str] = []
    for path in paths:
        subfolders = sorted(p for p in path.iterdir() if p.is_dir()) if path.is_dir() else []
        for folder in [path] if is_sequence(path) or not subfolders else subfolders:
            try:
                sequences += find_sequences(folder)
            except DoapError as error:
                failures.append(str(error))
    return sequences, failures


def _summarise(summaries: list["FolderSummary"], output: Path, existing: int) -> None:
    """Print the number of patches, and the mean overlap of jittered frames per level."""
    import numpy as np

    already = f", {existing} existed already" if existing else ""
    weights = [summary.patches for summary in summaries]
    sequences, patches = len(summaries), sum(weights)
    say(
        f"{sequences} {inflect(sequences, 'sequence')}, {patches} {inflect(patches, 'patch', 'patches')} per strip in "
        f"total, in {output}{already}"
    )
    for level in summaries[0].overlaps:
        mean = np.average([summary.overlaps[level] for summary in summaries], weights=weights)
        say(f"{level} frames overlap the undisturbed ones by {mean:.3f} on average")
