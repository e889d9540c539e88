"""`doap train`."""

from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import choose_device, say, training_bar
from doap.cli.data_show import open_with_bar
from doap.errors import DoapError
from doap.evaluation.figures import draw_losses
from doap.training.recipe import read_recipe
from doap.training.trainer import read_losses, read_run
from doap.training.trainer import train as train_descriptor

EXAMPLE = "Example: doap train photos-real --data sets/mine -o runs/mine --set epochs=5"


def train(
    recipe: Annotated[
        Path | None, typer.Argument(metavar="[RECIPE]", help="A recipe: its name, or a YAML file.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="A patch set, a frame set, or an official folder.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder for the run; must be new.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the unfinished run in this folder.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value over the recipe; repeatable.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
) -> None:
    """Train a descriptor by Average Precision.

    The run folder gets the recipe, versions, a log, a loss curve, a checkpoint and the weights. A run that
    was stopped, however hard, goes on with --resume to the same weights.
    """
    if resume:
        if recipe or data or output or settings:
            raise DoapError("--resume takes recipe, data and folder from the run: give nothing else with it")
        run, source, chosen = resume, Path(read_run(resume)["data"]), read_recipe(resume / "recipe.yaml")
    elif recipe and data and output:
        run, chosen, source = output, read_recipe(recipe, settings), data
        if run.exists():
            raise DoapError(f"{run}: exists already; choose another folder, or go on with --resume {run}")
    else:
        raise DoapError("give a RECIPE, --data and -o, or --resume; see doap train --help")
    found = open_with_bar(source)
    say(f"training on {found}")
    with training_bar() as bar:
        task = bar.add_task(run.name, total=1.0, loss=1.0)
        train_descriptor(
            chosen,
            found,
            run,
            name=run.name,
            origin=str(source.absolute()),
            device=choose_device(device),
            progress=lambda done, loss: bar.update(task, completed=done, loss=loss),
        )
    losses = read_losses(run)
    draw_losses({run.name: losses}, run / "loss.png")
    say(f"{len(losses)} steps, loss {losses[0]:.3f} to {losses[-1]:.3f}")
    say(f"weights in {run / 'weights.safetensors'}")
