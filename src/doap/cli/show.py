"""`doap show`: looking into a model."""

from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import choose_device, counting_bar, say
from doap.cli.data_show import open_with_bar
from doap.evaluation.alignment.benchmark import align, transformer_of
from doap.evaluation.alignment.figure import draw_alignment
from doap.files import check_figure_format
from doap.networks.registry import load

app = typer.Typer(no_args_is_help=True)


@app.callback()
def pictures() -> None:
    """Look into a model."""


@app.command(epilog="Example: doap show alignment runs/st/weights.safetensors --data sets/hpatches -o alignment.png")
def alignment(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="One with a Spatial Transformer: its .safetensors.")],
    data: Annotated[Path, typer.Option(metavar="SET", help="A patch set, a frame set, or an official folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The picture to write.")],
    groups: Annotated[int, typer.Option(min=1, max=20, help="Columns, a group each.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Fixes which groups, and the views of frames.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
) -> None:
    """Draw groups of patches as they are, aligned by a model's Spatial Transformer, and aligned with zeros beyond.

    Groups are drawn at random from those with the most patches, up to 16 of each. How much patches agree, the mean
    correlation of their pixels, is measured on up to 200 groups.
    """
    check_figure_format(output)
    loaded = load(model, choose_device(device))
    transformer_of(loaded)  # refuses before a set is converted
    found = open_with_bar(data)
    with counting_bar() as bar:
        task = bar.add_task("", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        result = align(loaded, found, seed, show)
    draw_alignment(result.groups[:groups], output)
    say(f"correlation of patches, {len(result.groups)} groups of {found}:")
    for name, measured in (
        ("original", result.before),
        ("aligned", result.after),
        ("aligned, zeros beyond", result.after_zeros),
    ):
        say(f"  {name + ':':<23}{measured.within:6.3f} within a group, {measured.between:6.3f} between groups")
    say(f"{min(groups, len(result.groups))} of the groups in {output}")
