"""`doap study`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from doap.choices import DEFAULT_DETECTOR
from doap.cli.console import choose_device, counting_bar, say, series_bar
from doap.cli.options.pairs import Detector, Keypoints, check_detector, parse_extent
from doap.cli.options.unused import check_unused
from doap.errors import inflect

if TYPE_CHECKING:
    from doap.evaluation.image_pairs.evaluator import PairsEvaluator
    from doap.experiments.series import RunRow
    from doap.networks.descriptor import Descriptor

STUDIES = ("data", "lists", "objectives", "objectives-cpu")
EXAMPLE = (
    "Example: doap study objectives --data sets/train --val sets/val --pairs pairs/val -o runs/objectives "
    "--set epochs=2"
)


def study(
    context: typer.Context,
    file: Annotated[
        str, typer.Argument(metavar="STUDY", help=f"YAML file, or name of a shipped study: {', '.join(STUDIES)}.")
    ],
    data: Annotated[Path, typer.Option(help="Training set: a patch set, a frame set, or an official folder.")],
    val: Annotated[Path, typer.Option(help="Set for the evaluation of all runs; must share no scene with --data.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the runs; an existing study continues.")],
    pairs: Annotated[
        Path | None,
        typer.Option(help="Image pairs with homographies, as for doap eval pairs; runs are then compared by these."),
    ] = None,
    detector: Detector = DEFAULT_DETECTOR,
    extent: Annotated[
        list[str] | None,
        typer.Option(metavar="FACTOR|own", help="Extent of the pairs' patches; repeatable, scores are averaged."),
    ] = None,
    keypoints: Keypoints = 1000,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value that overrides all recipes; repeatable.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
) -> None:
    """Compare trainings over several seeds, each tuned with the same effort.

    All runs are evaluated by AP on the same batches of a set that none was trained on and, with --pairs, by AP on image
    pairs, which is then the criterion. Settings are tuned with the first seed; the best is trained with the others.
    An interrupted study continues if the same command is run again.
    """
    from doap.cli.opening import open_training_with_bar, open_with_bar
    from doap.cli.table import print_table
    from doap.datasets.official.fingerprint import fingerprint_folder
    from doap.experiments.series import Series, shared_split
    from doap.experiments.study import run_study
    from doap.experiments.study_plan import read_study
    from doap.experiments.study_table import study_table, summarise_runs
    from doap.training.recipes.reading import check_used
    from doap.training.run_folder import DataSpec
    from doap.training.validation import (
        CommonValidation,
        check_disjoint,
        check_val_fraction,
        check_validation_folder,
    )

    if not pairs:
        check_unused(context, ("detector", "extent", "keypoints"), "a study without --pairs")
    plan = read_study(file, settings)
    recipes = [plan.base, *(recipe for runs in plan.runs.values() for recipe in runs.values())]
    check_used(recipes, file)
    check_val_fraction(plan.base, settings or [])
    check_detector(detector)
    extents = [parse_extent(text) for text in extent or ["own"]]
    target = choose_device(device)
    check_validation_folder([data], val)
    split = shared_split(recipes)
    training_set, validation_set = open_training_with_bar([data], split), open_with_bar(val)
    check_disjoint(training_set, validation_set, str(val))
    evaluated_by: dict[str, Any] = {
        "lists": {
            "data": str(val.absolute()),
            "set": repr(validation_set),
            "recipe": plan.base.model_dump(),
            "fingerprint": fingerprint_folder(val),
        }
    }
    images = None
    if pairs:
        images = _open_pairs(pairs, detector, keypoints, extents, target)
        evaluated_by["pairs"] = {"data": str(pairs.absolute()), "count": len(images.pairs),
                                 "labelled": len(images.labelled), "detector": detector,
                                 "keypoints": keypoints, "extents": extents, "of two extents": "the centre's",
                                 "fingerprint": fingerprint_folder(pairs)}  # fmt: skip
    say(f"training on {training_set}, evaluating on {validation_set}")
    title = f"{Path(file).stem}, trained on {data.resolve().name}, evaluated on {(pairs or val).resolve().name}"
    source = DataSpec([str(data.absolute())], validation=str(val.absolute()))
    with series_bar() as (_, progress):
        series = Series(training_set, output, source, target, validation_set, progress)
        validation = CommonValidation(validation_set, plan.base, target, series.cache)

        def evaluate(_run: Path, model: "Descriptor") -> dict[str, float]:
            pair_scores = images.measure(model) if images else {}
            return {**pair_scores, "lists": 100 * validation.average_precision(model)}

        rows = run_study(plan, series, evaluate, evaluated_by, lambda rows: _show(rows, title, output))
    summaries = summarise_runs(rows)
    if summaries:
        succeeded = {summary.run for summary in summaries}
        print_table(study_table(summaries, [run for run in plan.runs if run not in succeeded]))
    files = f"study.csv, study.json{', study.png' if summaries else ''}"
    say(f"{len(rows)} {inflect(len(rows), 'run')} in {output}: {files}")


def _open_pairs(
    folder: Path, detector: str, keypoints: int, extents: list[float | None], device: str
) -> "PairsEvaluator":
    from doap.evaluation.image_pairs.evaluator import PairsEvaluator

    with counting_bar() as bar:
        task = bar.add_task("reading pairs", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        return PairsEvaluator(folder, detector, keypoints, extents, device, progress)


def _show(rows: list["RunRow"], title: str, output: Path) -> None:
    """Print the last row, draw the curves of its run, and draw all rows."""
    from doap.experiments.study import ROW_KEYS
    from doap.experiments.study_figure import draw_study
    from doap.experiments.study_plan import folder_name
    from doap.experiments.study_table import summarise_runs
    from doap.training.curves import draw_run
    from doap.training.run_folder import is_complete

    last = rows[-1]
    name = folder_name(last["run"], last["setting"], last["seed"])
    if is_complete(output / name):
        draw_run(output / name)
    measures = ", ".join(f"{key} {value:.2f} %" for key, value in last.items() if key not in ROW_KEYS)
    say(f"{name}: {measures or 'failed, its loss or weights were not finite'}")
    if summaries := summarise_runs(rows):
        draw_study(summaries, title, output / "study.png")
