"""`doap data mine`: label mining."""

from pathlib import Path
from typing import Annotated

import typer

from doap.choices import MAX_SEED
from doap.cli.console import choose_device, counting_bar, say
from doap.cli.opening import open_training_with_bar
from doap.datasets.label_mining.settings import CLUSTERS, MAX_CLUSTERS, PERCENTILE

EXAMPLE = "Example: doap data mine hpatches/ --split a -o clusters.png --save mined.npz"


def mine(
    path: Annotated[Path, typer.Argument(metavar="SET", help="A patch set, a frame set, or an official folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Figure of clusters of some sequences.")],
    split: Annotated[
        str | None,
        typer.Option(help="Mine only what this split trains on: a, b or c of HPatches, train of RomePatches."),
    ] = None,
    clusters: Annotated[int, typer.Option(min=1, max=MAX_CLUSTERS, help="Clusters per sequence.")] = CLUSTERS,
    percentile: Annotated[
        float,
        typer.Option(
            min=0, max=100, help="Percentile of the distances between clusters; nearer clusters ignore each other."
        ),
    ] = PERCENTILE,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the clusters and of the figure.")] = 0,
    save: Annotated[
        Path | None, typer.Option(help="Save the mined labels, a .npz file for doap train --mined.")
    ] = None,
    sequence: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Sequence to draw; repeatable, up to eight. By default four sampled ones."),
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Folder of image sequences; draws the first image of each sequence.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
) -> None:
    """Find the patches of one sequence that are negatives of each other, by clustering their appearance.

    Patches of distant clusters are negatives of each other. Patches of clusters that look too similar, such as the
    windows of a facade, ignore each other. Patches of a frame set are cut without jitter.
    """
    import torch

    from doap.datasets.label_mining.figure import check_sequences, draw_clusters, sequence_names
    from doap.datasets.label_mining.mining import check_label_path, count_pairs, mine_labels
    from doap.datasets.label_mining.settings import MiningSettings
    from doap.files import check_figure_format
    from doap.training.data_cache import DataCache

    check_figure_format(output)
    if save:
        check_label_path(save)
    data = open_training_with_bar([path], split)
    names = list(dict.fromkeys(sequence or []))
    check_sequences(data, names, images)
    take = DataCache().load_plain(data, torch.device(choose_device(device)))
    with counting_bar() as bar:
        task = bar.add_task("clustering patches", total=len(data))
        mined = mine_labels(
            data,
            take,
            MiningSettings(clusters, percentile, seed),
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    if save:
        mined.save(save, data)
    for name, negatives, ignored in zip(sequence_names(data), *count_pairs(mined, data), strict=True):
        fraction = ignored / max(negatives + ignored, 1)
        say(f"{name}: {negatives:,} pairs of patches are negatives, {ignored:,} ({fraction:.1%}) ignored")
    draw_clusters(mined, data, take, output, names, images, seed)
    say(f"figure of some clusters: {output}" + (f", labels: {save}" if save else ""))
