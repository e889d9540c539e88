"""`doap train`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from doap.cli.console import choose_device, say, series_bar
from doap.errors import DoapError, inflect

if TYPE_CHECKING:
    from doap.training.log import Status

EXAMPLE = "Example: doap train photos-real --data sets/mine -o runs/mine --set epochs=5"


def train(
    recipe: Annotated[Path | None, typer.Argument(metavar="[RECIPE]", help="Name or YAML file of a recipe.")] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Patch set, frame set, or official folder; repeatable for the union of patch sets."),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="New folder for the run.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Resume the unfinished run in this folder.")] = None,
    initial_weights: Annotated[
        str | None,
        typer.Option("--from", metavar="MODEL", help="Fine-tune this model: a shipped one, or a .safetensors file."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value that overrides the recipe; repeatable.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="Split to train on, instead of the recipe's: a, b or c of HPatches, train of RomePatches."),
    ] = None,
    mined: Annotated[
        Path | None,
        typer.Option(help="Mined labels of the training set, from doap data mine --save; by default they are mined."),
    ] = None,
    val: Annotated[
        Path | None,
        typer.Option(help="Validation set, instead of the recipe's val_fraction, which then has no effect."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
    devices: Annotated[
        int | None, typer.Option(min=1, help="Number of GPUs, or of CPU processes; by default 1.")
    ] = None,
) -> None:
    """Train a descriptor by Average Precision.

    The run folder holds the recipe, versions, a log (CSV and TensorBoard), curves, a checkpoint, the weights with the
    best validation AP, and the last weights. An interrupted run continues with --resume to the same weights. Under
    torchrun or SLURM, each batch is split between their processes.
    """
    from doap.cli.opening import open_training_with_bar, open_with_bar
    from doap.networks import check_name
    from doap.training.distributed import is_rank_zero
    from doap.training.recipes.reading import check_used, read_recipe, read_recorded_recipe, setting_keys
    from doap.training.run_folder import DataSpec, is_unstarted, read_run
    from doap.training.trainer import train as train_descriptor
    from doap.training.validation import check_disjoint, check_val_fraction, check_validation_folder

    if resume:
        if recipe or data or output or initial_weights or settings or split or mined or val or device or devices:
            raise DoapError("--resume takes everything from the run folder: give no other option with it")
        info = read_run(resume)
        if not (resume / "recipe.yaml").exists() and is_unstarted(resume):
            raise DoapError(f"{resume}: was stopped before its first step; start it again with -o {resume}")
        run, source, run_recipe = resume, info.source, read_recorded_recipe(resume / "recipe.yaml")
        run_split = run_recipe.split or info.split or None
        device, devices = info.device, info.devices
    elif recipe and data and output:
        options = {"split": split, "initial_weights": initial_weights}
        for key in setting_keys(settings or []):
            if options.get(key):
                raise DoapError(
                    f"--set {key}: --{'split' if key == 'split' else 'from'} sets it, too; give one of them"
                )
        overrides = [*(settings or []), *(f"{key}={json.dumps(value)}" for key, value in options.items() if value)]
        run, run_recipe = output, read_recipe(recipe, overrides)
        check_used([run_recipe], str(recipe))
        check_name(run.name)
        run_split = run_recipe.split
        if val:
            check_val_fraction(run_recipe, settings or [])
            check_validation_folder(data, val)
        source = DataSpec([str(path.absolute()) for path in data], str(val.absolute()) if val else "")
        if is_rank_zero() and not is_unstarted(run):
            raise DoapError(f"{run}: exists already; choose another folder, or continue with --resume {run}")
    else:
        raise DoapError("give a RECIPE, --data and -o, or --resume; see doap train --help")
    target = choose_device(device)
    training_set = open_training_with_bar([Path(path) for path in source.data], run_split)
    validation_set = open_with_bar(Path(source.validation)) if source.validation else None
    if val and validation_set is not None:
        check_disjoint(training_set, validation_set, str(val))
    if is_rank_zero():
        say(f"training on {training_set}")
    with series_bar() as (_, show):

        def progress(status: "Status") -> None:
            if is_rank_zero():
                show(run.name, status)

        train_descriptor(
            run_recipe,
            training_set,
            run,
            name=run.name,
            source=source,
            device=target,
            devices=devices or 1,
            validation=validation_set,
            progress=progress,
            mined=mined,
        )
    if is_rank_zero():
        _summarise(run)


def _summarise(run: Path) -> None:
    from doap.training.curves import draw_run
    from doap.training.log import read_losses, read_validation

    losses, validation = read_losses(run), read_validation(run)
    if losses:  # none if the log was removed
        draw_run(run)
        steps = f"{len(losses)} {inflect(len(losses), 'step')}"
        say(f"{steps}, loss {losses[0]:.3f} to {losses[-1]:.3f}; curves in {run / 'training.png'}")
    if validation:
        epoch, best = max(validation, key=lambda row: row[1])
        say(f"validation AP {100 * validation[-1][1]:.1f} %; best {100 * best:.1f} % after epoch {epoch}")
        say(f"best weights in {run / 'best.safetensors'}")
    say(f"last weights in {run / 'weights.safetensors'}")
