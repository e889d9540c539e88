"""`doap show alignment`: patches before and after the Spatial Transformer of a model."""

from pathlib import Path
from typing import Annotated

import typer

from doap.choices import MAX_SEED
from doap.cli.console import choose_device, say, step_bar
from doap.cli.opening import open_with_bar
from doap.errors import inflect

EXAMPLE = "Example: doap show alignment runs/st/weights.safetensors --data sets/hpatches -o alignment.png"


def alignment(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model with a Spatial Transformer: its .safetensors file.")
    ],
    data: Annotated[Path, typer.Option(metavar="SET", help="A patch set, a frame set, or an official folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The figure to write.")],
    groups: Annotated[int, typer.Option(min=1, max=20, help="Number of columns, one group per column.")] = 5,
    zeros_model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="A model trained with transformer_padding=zeros, for the third row."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the groups, and of the views of frames.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
) -> None:
    """Draw groups of patches: original, aligned by the Spatial Transformer of a model, and aligned with zero padding.

    The third row uses the transformations of MODEL, or those of --zeros-model, as the paper's figure does.

    Groups are sampled from those with the most patches, at most 16 patches of each. The agreement of patches, the mean
    correlation of their pixels, is measured on up to 200 groups.
    """
    from doap.evaluation.alignment.benchmark import align, find_transformers
    from doap.evaluation.alignment.figure import draw_alignment
    from doap.files import check_figure_format
    from doap.networks.registry import load

    check_figure_format(output)
    target = choose_device(device)
    descriptor = load(model, target, fast=False)
    zeros_descriptor = load(zeros_model, target, fast=False) if zeros_model else None
    find_transformers(descriptor, zeros_descriptor)  # fail before a set is converted
    patches = open_with_bar(data)
    with step_bar() as progress:
        result = align(descriptor, patches, seed, progress, zeros_descriptor)
    draw_alignment(result, output, groups)
    say(f"correlation of patches, {len(result.groups)} {inflect(len(result.groups), 'group')} of {patches}:")
    width = max(map(len, result.rows)) + 1
    for name, agreement in result.rows.items():
        say(f"  {name + ':':<{width}}{agreement.within:7.3f} within a group, {agreement.between:6.3f} between groups")
    say(f"{min(groups, len(result.groups))} of the groups in {output}")
