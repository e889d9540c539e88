"""`doap eval warped`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import console, counting_bar, say, score_table
from doap.cli.eval_options import (
    CsvFile,
    Device,
    FigureFile,
    JsonFile,
    Models,
    NoCache,
    check_outputs,
    methods_from,
    write_outputs,
)
from doap.errors import DoapError
from doap.evaluation.harness.figures import draw_bars
from doap.evaluation.harness.result import Result
from doap.evaluation.image_pairs import warped as benchmark
from doap.images.reading import find_photos, read_grey
from doap.networks.registry import DEFAULT_MODEL

EXAMPLE = f"Example: doap eval warped --data photos/ --models {DEFAULT_MODEL} sift rootsift --json scores.json"


def warped(
    data: Annotated[list[Path], typer.Option(metavar="PHOTOS …", help="Pictures, or folders of them.")],
    models: Models = None,
    copies: Annotated[int, typer.Option(min=1, help="Warped copies of each photo.")] = 5,
    keypoints: Annotated[int, typer.Option(min=1, help="Strongest keypoints of each image.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Fixes the copies.")] = 0,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    figure: FigureFile = None,
    device: Device = None,
    fresh: NoCache = False,
) -> None:
    """Match photos with copies of themselves under known homographies and light changes.

    Every descriptor describes the same keypoints; each keypoint of the photo proposes its nearest neighbour
    in the copy, and AP is computed over the proposals ranked by distance.
    """
    check_outputs(figure)
    methods = methods_from(models, device, fresh, detector=benchmark.DETECTOR)
    pairs, failures = [], []
    found = find_photos(data)
    with counting_bar() as bar:
        for number, path in enumerate(bar.track(found, description="making copies")):
            try:
                pairs += benchmark.make_pairs(str(path), read_grey(path), copies, keypoints, seed + number)
            except DoapError as error:
                failures.append(str(error))
        if not pairs:
            raise DoapError("; ".join(failures))
        task = bar.add_task("matching", total=len(pairs) * len(methods))
        scores = benchmark.evaluate(pairs, methods, lambda: bar.advance(task))
    rows = benchmark.summarise(scores)
    console.print(score_table(rows))
    say(f"{len(pairs)} pairs of {len(found) - len(failures)} photos, up to {keypoints} keypoints an image")
    for line in failures:
        say(f"left out: {line}", style="yellow")
    settings = {"data": [str(path) for path in data], "copies": copies, "keypoints": keypoints, "seed": seed}
    result = Result(
        benchmark="warped",
        settings={**settings, "left out": failures},
        methods=[each.about() for each in methods],
        scores=[_row(score) for score in scores],
    )
    write_outputs(result, json_file, csv_file, figure, lambda _result, path: draw_bars(rows, path))


def _row(score: benchmark.Score) -> dict[str, str | int | float | None]:
    values = asdict(score)
    return {
        "descriptor": values["descriptor"],
        "pair": values["pair"],
        "ap": 100 * values["average_precision"],
        "right neighbours": 100 * values["correct_neighbours"],
    }
