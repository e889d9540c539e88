"""`doap train`."""

from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import choose_device, say, status_text, training_bar
from doap.cli.data_show import open_with_bar
from doap.datasets.official.hpatches_tasks import select_training_sequences
from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.evaluation.harness.figures import draw_training
from doap.training.distributed import is_rank_zero
from doap.training.log import Status, read_losses, read_times, read_validation
from doap.training.recipe import read_recipe, read_recorded_recipe
from doap.training.run_folder import Source, read_run
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
    split: Annotated[str | None, typer.Option(help="Train on the training half of this split of HPatches.")] = None,
    val: Annotated[
        Path | None,
        typer.Option(help="A set to judge every epoch on; by default what the recipe's val_fraction keeps."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
    devices: Annotated[
        int | None,
        typer.Option(min=1, help="GPUs, or processes on the CPU, that share the work. One by default."),
    ] = None,
) -> None:
    """Train a descriptor by Average Precision.

    The run folder gets the recipe, versions, a log (CSV and TensorBoard), curves, a checkpoint, the best weights on
    held-out sequences and the last ones. A run that was stopped, however hard, goes on with --resume to the
    same weights. Under torchrun or SLURM their processes share the work.
    """
    if resume:
        if recipe or data or output or settings or split or val or device or devices:
            raise DoapError("--resume takes everything from the run: give nothing else with it")
        about = read_run(resume)
        run, source, chosen = resume, about.source, read_recorded_recipe(resume / "recipe.yaml")
        device, devices = about.device, about.devices
    elif recipe and data and output:
        run, chosen = output, read_recipe(recipe, settings)
        source = Source(str(data.absolute()), split or "", str(val.absolute()) if val else "")
        if is_rank_zero() and run.exists():
            raise DoapError(f"{run}: exists already; choose another folder, or go on with --resume {run}")
    else:
        raise DoapError("give a RECIPE, --data and -o, or --resume; see doap train --help")
    found = open_with_bar(Path(source.data))
    if source.split:
        found = _training_half(found, Path(source.data), source.split)
    if is_rank_zero():
        say(f"training on {found}")
    with training_bar() as bar:
        task = bar.add_task(run.name, total=1.0, status="")

        def show(status: Status) -> None:
            if is_rank_zero():
                bar.update(task, completed=status.done, status=status_text(status))

        train_descriptor(
            chosen,
            found,
            run,
            name=run.name,
            source=source,
            device=choose_device(device),
            devices=devices or 1,
            validation=open_with_bar(Path(source.validation)) if source.validation else None,
            progress=show,
        )
    if is_rank_zero():
        _summarise(run)


def _training_half(data: PatchSet | FrameSet, folder: Path, split: str) -> PatchSet:
    if isinstance(data, FrameSet):
        raise DoapError(f"{folder}: --split is for the official folders of HPatches")
    return select_training_sequences(data, folder, split)


def draw_curves(run: Path) -> None:
    """Draw training.png: the loss and the held-out AP of a run."""
    draw_training(read_times(run), read_losses(run), read_validation(run), run / "training.png")


def _summarise(run: Path) -> None:
    losses, validation = read_losses(run), read_validation(run)
    draw_curves(run)
    say(f"{len(losses)} steps, loss {losses[0]:.3f} to {losses[-1]:.3f}")
    if validation:
        epoch, best = max(validation, key=lambda row: row[1])
        say(f"held-out AP {100 * validation[-1][1]:.1f} %; best {100 * best:.1f} % after epoch {epoch}")
        say(f"best weights in {run / 'best.safetensors'}")
    say(f"last weights in {run / 'weights.safetensors'}; curves in {run / 'training.png'}")
