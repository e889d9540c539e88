"""`doap study`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from doap.cli.console import choose_device, counting_bar, say, series_bar
from doap.cli.data_show import open_with_bar
from doap.cli.eval_options import Device, show_table
from doap.cli.pair_options import Detector, Keypoints, check_detector, extent_from
from doap.cli.train import draw_curves
from doap.evaluation.image_pairs.evaluator import PairsEvaluator
from doap.experiments.series import Row, Series
from doap.experiments.study import KEYS, best_tries, lead, run_study
from doap.experiments.study_figure import draw_study
from doap.experiments.study_plan import folder_name, list_studies, read_study
from doap.experiments.study_table import Standing, standings, study_table
from doap.networks.descriptor import Descriptor
from doap.training.run_folder import Source, is_complete
from doap.training.validation import CommonLists

EXAMPLE = (
    "Example: doap study objectives --data sets/train --val sets/val --pairs pairs/val -o runs/objectives "
    "--set epochs=2"
)


def study(
    file: Annotated[
        str, typer.Argument(metavar="STUDY", help=f"A YAML file, or one that ships: {', '.join(list_studies())}.")
    ],
    data: Annotated[Path, typer.Option(help="What to train on: a patch set, a frame set, or an official folder.")],
    val: Annotated[Path, typer.Option(help="A set that shares nothing with it, to judge every training by.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the runs; one begun before goes on.")],
    pairs: Annotated[
        Path | None, typer.Option(help="Image pairs with homographies, as doap eval pairs reads them: judge by these.")
    ] = None,
    detector: Detector = "dog",
    extent: Annotated[
        list[str] | None,
        typer.Option(metavar="FACTOR|own", help="Half the side of the pairs' patches; repeatable, all count alike."),
    ] = None,
    keypoints: Keypoints = 1000,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value over all recipes; repeatable.")] = None,
    device: Device = None,
) -> None:
    """Compare trainings over several seeds, each tuned as much as the others.

    All are judged by AP on the same lists of a set that none was trained on and, with --pairs, by AP on image
    pairs, which then decides. What a study tunes is tried with its first seed; the best is trained with the others.
    A study that was stopped goes on where it was: give the same command again.
    """
    planned = read_study(file, settings)
    check_detector(detector)
    extents = [extent_from(text) for text in extent or ["own"]]
    chosen = choose_device(device)
    found, aside = open_with_bar(data), open_with_bar(val)
    judged_by: dict[str, Any] = {
        "lists": {"data": str(val.absolute()), "set": repr(aside), "recipe": planned.lists.model_dump()}
    }
    images = None
    if pairs:
        images = _open_pairs(pairs, detector, keypoints, extents, chosen)
        judged_by["pairs"] = {"data": str(pairs.absolute()), "count": len(images.pairs),
                              "labelled": len(images.labelled), "detector": detector,
                              "keypoints": keypoints, "extents": extents}  # fmt: skip
    say(f"training on {found}, judging on {aside}")
    title = f"{Path(file).stem}, trained on {data.resolve().name}, judged on {(pairs or val).resolve().name}"
    with series_bar() as (_, tell):
        series = Series(
            found,
            output,
            Source(str(data.absolute()), validation=str(val.absolute())),
            chosen,
            aside,
            tell,
        )
        lists = CommonLists(aside, planned.lists, chosen, series.sources)

        def judge(_run: Path, model: Descriptor) -> dict[str, float]:
            on_images = images.measure(model) if images else {}
            return {**on_images, "lists": 100 * lists.average_precision(model)}

        rows = run_study(planned, series, judge, judged_by, lambda rows: _show(rows, title, output))
    ranked = ranked_runs(rows)
    if ranked:
        show_table(study_table(ranked, [run for run in planned.runs if run not in {each.run for each in ranked}]))
    say(f"{len(rows)} runs in {output}: study.csv, study.json{', study.png' if ranked else ''}")


def _open_pairs(
    folder: Path, detector: str, keypoints: int, extents: list[float | None], device: str
) -> PairsEvaluator:
    with counting_bar() as bar:
        task = bar.add_task("reading pairs", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        return PairsEvaluator(folder, detector, keypoints, extents, device, progress)


def ranked_runs(rows: list[Row]) -> list[Standing]:
    """The runs of which at least one training came through, best first."""
    measured = next((row for row in rows if lead(row) is not None), {})
    measures = [name for name in measured if name not in KEYS]
    return standings(rows, best_tries(rows), measures) if measures else []


def _show(rows: list[Row], title: str, output: Path) -> None:
    """Say the last row and draw its run's curves, and draw all rows."""
    last = rows[-1]
    name = folder_name(last["run"], last["tried"], last["seed"])
    if is_complete(output / name):
        draw_curves(output / name)
    measured = ", ".join(f"{key} {value:.2f} %" for key, value in last.items() if key not in KEYS)
    say(f"{name}: {measured or 'failed, its loss or weights were no numbers'}")
    if ranked := ranked_runs(rows):
        draw_study(ranked, title, output / "study.png")
