"""`doap data mine`: label mining."""

from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import choose_device, counting_bar, say
from doap.cli.data_show import open_with_bar
from doap.datasets.label_mining import CLUSTERS, PERCENTILE
from doap.errors import DoapError

EXAMPLE = "Example: doap data mine sets/hpatches -o clusters.png --save mined.npz"


def mine(
    path: Annotated[Path, typer.Argument(metavar="SET", help="A patch set, or an official folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Figure of clusters of up to four sequences.")],
    clusters: Annotated[int, typer.Option(min=1, help="Clusters per sequence.")] = CLUSTERS,
    percentile: Annotated[
        float,
        typer.Option(
            min=0, max=100, help="Percentile of the distances between clusters; nearer clusters ignore each other."
        ),
    ] = PERCENTILE,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the clusters and of the figure.")] = 0,
    save: Annotated[Path | None, typer.Option(help="Save the mined labels, a .npz file to train with.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
) -> None:
    """Find the patches of one sequence that are distractors of each other, by clustering their appearance.

    Patches of distant clusters are distractors of each other. Patches of clusters that look too similar, such as the
    windows of a facade, ignore each other.
    """
    import numpy as np
    import torch

    from doap.datasets.batches.resident_patches import to_device
    from doap.datasets.label_mining.figure import draw_clusters
    from doap.datasets.label_mining.mining import check_label_path, count_pairs, mine_labels
    from doap.datasets.sets.patch_set import PatchSet
    from doap.files import check_figure_format

    check_figure_format(output)
    if save:
        check_label_path(save)
    patches = open_with_bar(path)
    if not isinstance(patches, PatchSet):
        raise DoapError(f"{path}: label mining needs pixels, and a frame set has none; build it without --frames")
    target = torch.device(choose_device(device))
    with counting_bar() as bar:
        task = bar.add_task("clustering patches", total=len(patches))
        mined = mine_labels(
            patches,
            lambda indices: to_device(patches.take(indices), target),
            clusters,
            percentile,
            seed,
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    if save:
        mined.save(save, patches)
    sequences = np.unique(patches.sequences)
    for sequence, distractors, ignored in zip(sequences, *count_pairs(mined, patches), strict=True):
        name = patches.sequence_names[sequence] if patches.sequence_names else f"sequence {sequence}"
        fraction = ignored / max(distractors + ignored, 1)
        say(f"{name}: {distractors:,} pairs of patches are distractors, {ignored:,} ({fraction:.1%}) ignored")
    draw_clusters(mined, patches, output, seed)
    say(f"figure of some clusters: {output}" + (f", labels: {save}" if save else ""))
