"""`doap sweep`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress as ProgressBar

from doap.cli.console import choose_device, counting_bar, say, series_bar
from doap.errors import DoapError

if TYPE_CHECKING:
    from doap.evaluation.phototour.pair_test import PairTest
    from doap.experiments.series import Evaluator, RunRow
    from doap.experiments.sweep import Sweep
    from doap.networks.descriptor import Descriptor

EXAMPLE = (
    "Example: doap sweep phototour-real --data liberty --over batch_size=256,512,1024,2048,4096 -o runs/batch-sizes "
    "--test notredame --test yosemite"
)


def sweep(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="Name or YAML file of a recipe.")],
    data: Annotated[Path, typer.Option(help="Patch set, frame set, or official folder.")],
    over: Annotated[str, typer.Option(metavar="KEY=VALUE,…", help="Recipe key and the values to try.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the runs; an existing sweep continues.")],
    test: Annotated[
        list[Path] | None,
        typer.Option(help="Phototour folder for the evaluation; repeatable. By default validation scenes."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value that overrides the recipe; repeatable.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
) -> None:
    """Train a recipe for several values of one key, and draw the effect.

    By default runs are evaluated by AP on validation scenes (--set val_fraction=0.1): the best weights of each, all on
    the same batches. With --test they are evaluated by the mean FPR95 on the official pairs of Phototour folders, as in
    the paper's figure of the batch size.
    An interrupted sweep continues if the same command is run again.
    """
    from doap.cli.data_show import open_with_bar
    from doap.experiments.series import Series
    from doap.experiments.sweep import evaluate_on_val, plan_sweep, run_sweep
    from doap.training.run_folder import DataSpec

    plan = plan_sweep(recipe, over, settings)
    if not test and not all(run.val_fraction for run in plan.recipes.values()):
        raise DoapError("no data for the evaluation: give --test PHOTOTOUR_FOLDER, or --set val_fraction=0.1")
    target = choose_device(device)
    tests = _open_tests(test or [])
    training_set = open_with_bar(data)
    say(f"training {len(plan.recipes)} times on {training_set}")
    title = f"{recipe.stem} trained on {data.resolve().name}"
    with series_bar() as (bar, progress):
        series = Series(training_set, output, DataSpec(str(data.absolute())), target, progress=progress)
        rows = run_sweep(
            plan,
            series,
            _evaluate_on_pairs(tests, bar) if tests else evaluate_on_val(plan, series),
            record={"recipe": str(recipe), "settings": settings or [], "tests": [str(folder) for folder in test or []]},
            on_row=lambda rows: _show(plan, rows, tests, title, output),
        )
    say(f"{len(rows)} runs in {output}: sweep.csv, sweep.json, sweep.png")


def _open_tests(folders: list[Path]) -> list["PairTest"]:
    from doap.evaluation.phototour.pair_test import open_test

    with counting_bar() as bar:
        task = bar.add_task("converting", total=None, visible=False)
        tests = [
            open_test(folder, lambda done, total: bar.update(task, completed=done, total=total, visible=True))
            for folder in folders
        ]
    names = [test.name for test in tests]
    for name in names:
        if names.count(name) > 1:
            raise DoapError(f"--test: two folders are called {name}; give each once, under its own name")
    return tests


def _evaluate_on_pairs(tests: list["PairTest"], bar: ProgressBar) -> "Evaluator":
    """Return an evaluator by FPR95 in percent: the mean over the tests, and that of each."""
    from doap.evaluation.phototour.pair_test import fpr95

    def rate(model: "Descriptor", test: "PairTest") -> float:
        task = bar.add_task(f"evaluating on {test.name}", status="")
        value = fpr95(model, test, lambda done, total: bar.update(task, completed=done, total=total))
        bar.remove_task(task)
        return round(100 * value, 6)

    def evaluate(_run: Path, model: "Descriptor") -> dict[str, float]:
        rates = {f"fpr95 {test.name}": rate(model, test) for test in tests}
        return {"fpr95": round(sum(rates.values()) / len(rates), 6), **rates}

    return evaluate


def _show(plan: "Sweep", rows: list["RunRow"], tests: list["PairTest"], title: str, output: Path) -> None:
    """Print the last row, draw the curves of its run, and draw all rows."""
    from doap.experiments.sweep_figure import draw_sweep
    from doap.training.curves import draw_run
    from doap.training.recipe import Recipe

    last = rows[-1]
    draw_run(output / list(plan.recipes)[len(rows) - 1])
    key = plan.key
    description = Recipe.model_fields[key].description
    if tests:
        say(f"{key}={last[key]}: FPR95 {last['fpr95']:.2f} %")
        columns = {"mean": "fpr95", **({test.name: f"fpr95 {test.name}" for test in tests} if len(tests) > 1 else {})}
        scale, label = 1, f"FPR95 % on {tests[0].name}" if len(tests) == 1 else "FPR95 %"
    else:
        say(f"{key}={last[key]}: AP {100 * last['ap']:.2f} % on validation scenes, after epoch {last['epoch']}")
        columns, scale, label = {"AP": "ap"}, 100, "best AP % on validation scenes"
    curves = {name: [scale * row[column] for row in rows] for name, column in columns.items()}
    labels = (f"{key} ({description})" if description else key, label)
    draw_sweep([row[key] for row in rows], curves, labels, title, output / "sweep.png")
