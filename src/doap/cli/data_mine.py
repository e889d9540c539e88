"""`doap data mine`."""

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from doap.cli.console import choose_device, counting_bar, say
from doap.cli.data_show import open_with_bar
from doap.datasets.batches.resident_patches import send
from doap.datasets.label_mining.figure import draw_clusters
from doap.datasets.label_mining.mining import CLUSTERS, PERCENTILE, check_name, count_pairs, mine_labels
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.files import check_figure_format

EXAMPLE = "Example: doap data mine sets/hpatches -o clusters.png --save mined.npz"


def mine(
    path: Annotated[Path, typer.Argument(metavar="SET", help="A patch set, or an official folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Draw some clusters of up to four sequences here.")],
    clusters: Annotated[int, typer.Option(min=1, help="Clusters a sequence.")] = CLUSTERS,
    percentile: Annotated[
        float, typer.Option(min=0, max=100, help="Of the distances between clusters: nearer ones ignore each other.")
    ] = PERCENTILE,
    seed: Annotated[int, typer.Option(min=0, help="Fixes the clusters, and what is drawn.")] = 0,
    save: Annotated[Path | None, typer.Option(help="Keep the mined labels here, a .npz file to train with.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
) -> None:
    """Find out which patches of one sequence are fair distractors of each other, by clustering their appearance.

    Patches of clusters that lie far apart are distractors for each other; those of clusters that look too much
    alike, as the windows of a facade, ignore each other.
    """
    check_figure_format(output)
    if save:
        check_name(save)
    patches = open_with_bar(path)
    if not isinstance(patches, PatchSet):
        raise DoapError(f"{path}: label mining looks at pixels, and a frame set has none; build it without --frames")
    with counting_bar() as bar:
        task = bar.add_task("clustering patches", total=len(patches))
        chosen = torch.device(choose_device(device))
        mined = mine_labels(
            patches,
            lambda indices: send(patches.take(indices), chosen),
            clusters,
            percentile,
            seed,
            lambda count: bar.advance(task, count),
        )
    if save:
        mined.save(save, patches)
    sequences = np.unique(patches.sequences)
    for sequence, distractors, ignored in zip(sequences, *count_pairs(mined, patches), strict=True):
        name = patches.sequence_names[sequence] if patches.sequence_names else f"sequence {sequence}"
        share = ignored / max(distractors + ignored, 1)
        say(f"{name}: {distractors:,} pairs of patches are distractors, {ignored:,} ({share:.1%}) ignored")
    draw_clusters(mined, patches, output, seed)
    say(f"some clusters of them in {output}" + (f", all labels in {save}" if save else ""))
