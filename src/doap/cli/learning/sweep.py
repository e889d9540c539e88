"""`doap sweep`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from doap.cli.console import choose_device, say, series_bar
from doap.errors import DoapError, inflect

if TYPE_CHECKING:
    from doap.cli.progress import TrainingBar
    from doap.experiments.series import RunRow
    from doap.experiments.sweep import Sweep
    from doap.experiments.sweep_metrics import Metric
    from doap.types import StepProgress

EXAMPLE = (
    "Example: doap sweep phototour-real --data liberty --over batch_size=256,512,1024,2048,4096 -o runs/batch-sizes "
    "--test notredame --test yosemite"
)


def sweep(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="Name or YAML file of a recipe.")],
    data: Annotated[Path, typer.Option(help="Patch set, frame set, or official folder.")],
    over: Annotated[str, typer.Option(metavar="KEY=VALUE,…", help="Recipe key and the values to try, as in YAML.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the runs; an existing sweep continues.")],
    test: Annotated[
        list[Path] | None,
        typer.Option(
            help="Official folder of Phototour, HPatches or RomePatches to evaluate on; repeatable. By default "
            "validation scenes."
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="fpr95 (Phototour), verification, matching or retrieval (HPatches), map (RomePatches), or "
            "validation-ap. By default the only one of the test."
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="Split to train on, instead of the recipe's: a, b or c of HPatches, which is tested on the test "
            "sequences of that split; train of RomePatches."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value that overrides the recipe; repeatable.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
) -> None:
    """Train a recipe for several values of one key, and draw the effect.

    By default runs are evaluated by AP on validation scenes (--set val_fraction=0.1): the best weights of each, all on
    the same batches. With --test the last weights are evaluated by a metric of a benchmark: the mean FPR95 on the
    official pairs of Phototour scenes, as in the paper's figure of the batch size, the tie-aware mAP of a task of
    HPatches, or the mAP of the test half of RomePatches.
    An interrupted sweep continues if the same command is run again.
    """
    from doap.cli.opening import open_training_with_bar
    from doap.datasets.official.fingerprint import fingerprint_folder
    from doap.experiments.series import Series, shared_split
    from doap.experiments.sweep import check_same_scenes, evaluate_on_val, plan_sweep, run_sweep
    from doap.experiments.sweep_metrics import check_disjoint, choose_metric, make_evaluator
    from doap.training.recipes.reading import check_used, setting_keys
    from doap.training.run_folder import DataSpec

    if (key := over.partition("=")[0].strip()) in setting_keys(settings or []):
        raise DoapError(f"--set {key}: is what --over varies; leave it out")
    if split and "split" in {key, *setting_keys(settings or [])}:
        raise DoapError("--split: --set or --over sets it, too; give one of them")
    plan = plan_sweep(recipe, over, [*(settings or []), *([f"split={split}"] if split else [])])
    check_used(list(plan.recipes.values()), str(recipe))
    tests = test or []
    chosen = choose_metric(tests, metric)
    if not tests:
        check_same_scenes(plan)
    if not tests and not all(run.val_fraction for run in plan.recipes.values()):
        raise DoapError("no data for the evaluation: give --test OFFICIAL_FOLDER, or --set val_fraction=0.1")
    trained_split = shared_split(plan.recipes.values())
    check_disjoint(data, tests, trained_split)
    target = choose_device(device)
    training_set = open_training_with_bar([data], trained_split)
    say(f"training {len(plan.recipes)} {inflect(len(plan.recipes), 'time')} on {training_set}")
    title = f"{recipe.stem} trained on {data.resolve().name}"
    with series_bar() as (bar, progress):
        series = Series(training_set, output, DataSpec([str(data.absolute())]), target, progress=progress)
        evaluate = (
            make_evaluator(tests, metric, trained_split, target, _evaluation_progress(bar))[0]
            if tests
            else evaluate_on_val(plan, series)
        )
        record: dict[str, Any] = {
            "recipe": str(recipe),
            "settings": settings or [],
            "tests": [str(folder) for folder in tests],
            "fingerprints": [fingerprint_folder(folder) for folder in tests],
            "metric": chosen.record(),
            "split": trained_split,
        }
        rows = run_sweep(plan, series, evaluate, record, lambda rows: _show(plan, rows, chosen, title, output))
    say(f"{len(rows)} {inflect(len(rows), 'run')} in {output}: sweep.csv, sweep.json, sweep.png")


def _evaluation_progress(bar: "TrainingBar") -> "StepProgress":
    """Return a callback that shows the steps of an evaluation below the bar of the training."""
    task = bar.add_task("", status="", visible=False)

    def progress(step: str, done: int, total: int | None) -> None:
        if step != bar.tasks[-1].description:  # each step has its own time left
            bar.reset(task, description=step, status="")
        bar.update(task, completed=done, total=total, visible=done != total)

    return progress


def _show(plan: "Sweep", rows: list["RunRow"], metric: "Metric", title: str, output: Path) -> None:
    """Print the last row, draw the curves of its run, and draw all rows."""
    from doap.experiments.sweep import format_setting
    from doap.experiments.sweep_figure import draw_rows
    from doap.training.curves import draw_run

    last = rows[-1]
    draw_run(output / list(plan.recipes)[len(rows) - 1])
    epoch = f", after epoch {last['epoch']}" if "epoch" in last else ""
    say(f"{format_setting(plan.key, last[plan.key])}: {metric.format(last)}{epoch}")
    draw_rows(plan.key, rows, metric, title, output / "sweep.png")
