"""`doap sweep`."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.progress import Progress

from doap.cli.console import choose_device, counting_bar, say, series_bar
from doap.cli.data_show import open_with_bar
from doap.cli.train import draw_curves
from doap.errors import DoapError
from doap.evaluation.phototour.benchmark import PairTest, fpr95, open_test
from doap.experiments.series import Judge, Row, Series
from doap.experiments.sweep import Sweep, evaluate_on_val, plan_sweep, run_sweep
from doap.experiments.sweep_figure import draw_sweep
from doap.networks.descriptor import Descriptor
from doap.training.recipe import Recipe
from doap.training.run_folder import Source

EXAMPLE = (
    "Example: doap sweep phototour-real --data liberty --over batch_size=256,512,1024,2048,4096 -o runs/lists "
    "--test notredame --test yosemite"
)


def sweep(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe: its name, or a YAML file.")],
    data: Annotated[Path, typer.Option(help="A patch set, a frame set, or an official folder.")],
    over: Annotated[str, typer.Option(metavar="KEY=VALUE,…", help="A key of the recipe, and the values to try.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the runs; one begun before goes on.")],
    test: Annotated[
        list[Path] | None, typer.Option(help="A Phototour folder to judge by; repeatable. Else: held-out sequences.")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value over the recipe; repeatable.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
) -> None:
    """Train a recipe once for each value of one of its keys, and draw what it changes.

    By default each run is judged by AP on held-out scenes (--set val_fraction=0.1), its best weights on the same
    lists for all; with --test by the mean FPR95 on the official pairs of Phototour folders: so the paper's figure
    of the batch size is made.
    A sweep that was stopped goes on where it was: give the same command again.
    """
    planned = plan_sweep(recipe, over, settings)
    if not test and not all(each.val_fraction for each in planned.recipes.values()):
        raise DoapError(
            "nothing to judge the runs by: give --test PHOTOTOUR_FOLDER, or hold out with --set val_fraction=0.1"
        )
    chosen = choose_device(device)
    tests = _open_tests(test or [])
    found = open_with_bar(data)
    say(f"training {len(planned.recipes)} times on {found}")
    title = f"{recipe.stem} trained on {data.resolve().name}"
    with series_bar() as (bar, tell):
        series = Series(
            found,
            output,
            Source(str(data.absolute())),
            chosen,
            progress=tell,
        )
        rows = run_sweep(
            planned,
            series,
            _judge(tests, bar) if tests else evaluate_on_val(planned, series),
            about={"recipe": str(recipe), "settings": settings or [], "tests": [str(each) for each in test or []]},
            done=lambda rows: _show(planned, rows, tests, title, output),
        )
    say(f"{len(rows)} runs in {output}: sweep.csv, sweep.json, sweep.png")


def _open_tests(folders: list[Path]) -> list[PairTest]:
    with counting_bar() as bar:
        task = bar.add_task("converting", total=None, visible=False)
        opened = [
            open_test(folder, lambda done, total: bar.update(task, completed=done, total=total, visible=True))
            for folder in folders
        ]
    twice = [name for name, count in Counter(each.name for each in opened).items() if count > 1]
    if twice:
        raise DoapError(f"--test: two folders are called {twice[0]}; give each once, under a name of its own")
    return opened


def _judge(tests: list[PairTest], bar: Progress) -> Judge:
    """Mean FPR95 over the tests, and that of each, in percent."""

    def rate(model: Descriptor, test: PairTest) -> float:
        task = bar.add_task(f"judging on {test.name}", status="")
        found = fpr95(model, test, lambda done, total: bar.update(task, completed=done, total=total))
        bar.remove_task(task)
        return round(100 * found, 6)

    def judge(_run: Path, model: Descriptor) -> dict[str, float]:
        rates = {f"fpr95 {test.name}": rate(model, test) for test in tests}
        return {"fpr95": round(float(np.mean(list(rates.values()))), 6), **rates}

    return judge


def _show(planned: Sweep, rows: list[Row], tests: list[PairTest], title: str, output: Path) -> None:
    """Say the last row and draw its run's curves, and draw all rows."""
    last = rows[-1]
    draw_curves(output / list(planned.recipes)[len(rows) - 1])
    key = planned.key
    described = Recipe.model_fields[key].description
    if tests:
        say(f"{key}={last[key]}: FPR95 {last['fpr95']:.2f} %")
        names = {"mean": "fpr95", **({each.name: f"fpr95 {each.name}" for each in tests} if len(tests) > 1 else {})}
        scale, label = 1, f"FPR95 % on {tests[0].name}" if len(tests) == 1 else "FPR95 %"
    else:
        say(f"{key}={last[key]}: AP {100 * last['ap']:.2f} % on held-out sequences, after epoch {last['epoch']}")
        names, scale, label = {"AP": "ap"}, 100, "best AP % on held-out sequences"
    curves = {name: [scale * row[column] for row in rows] for name, column in names.items()}
    labels = (f"{key} ({described})" if described else key, label)
    draw_sweep([row[key] for row in rows], curves, labels, title, output / "sweep.png")
