"""`doap train-frames`."""

import math
from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import choose_device, say, training_bar
from doap.errors import DoapError, inflect
from doap.files import printable

EXAMPLE = "Example: doap train-frames --data sets/tilted -o runs/frames"


def train_frames(
    data: Annotated[Path, typer.Option(help="Set of tilted views, from doap data tilt.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="New folder for the run.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value that overrides the recipe; repeatable.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
) -> None:
    """Train a network that corrects frames, by Average Precision.

    It corrects affine shape, orientation and scale, from the patch around a frame. The run folder holds the recipe, a
    log (CSV), the weights and their card. --set objective=affnet --set network.corrections=shape trains the baseline.
    """
    from doap.datasets.tilted.tilted_set import TiltedSet
    from doap.networks.card import Origin, TrainingSet
    from doap.training.frames.recipe import read_settings
    from doap.training.frames.trainer import FrameStatus
    from doap.training.frames.trainer import train_frames as train

    recipe = read_settings(settings or [])
    if output.exists():
        raise DoapError(f"{output}: exists already; choose another folder")
    tilted = TiltedSet.open(data)
    say(f"training on {tilted.frames}")
    origin = Origin(data=str(data), training_sets=[TrainingSet(path=str(data))])
    last = FrameStatus(0, math.nan)
    with training_bar() as bar:
        task = bar.add_task(printable(output.name), total=recipe.steps, status="")

        def show(status: FrameStatus) -> None:
            nonlocal last
            last = status
            bar.update(task, completed=status.step, status=f"loss {status.loss:.3f}")

        train(recipe, tilted, output, output.name, origin, choose_device(device), show)
    steps = f"{last.step} {inflect(last.step, 'step')}"
    say(f"{steps}, loss {last.loss:.3f}; weights in {output / 'weights.safetensors'}")
