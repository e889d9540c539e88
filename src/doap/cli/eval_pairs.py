"""`doap eval pairs`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import counting_bar, say
from doap.cli.eval_options import (
    CsvFile,
    Device,
    FigureFile,
    JsonFile,
    Models,
    NoCache,
    check_outputs,
    methods_from,
    show_table,
    write_outputs,
)
from doap.cli.match import Shared
from doap.cli.pair_options import Detector, Extent, Keypoints, check_detector, extent_from
from doap.datasets.sets.image_pairs import find_pairs
from doap.errors import DoapError
from doap.evaluation.harness.result import Result
from doap.evaluation.image_pairs import correspondences
from doap.evaluation.image_pairs.figure import draw_pair, draw_pairs
from doap.evaluation.image_pairs.reading import PairReader
from doap.evaluation.image_pairs.scoring import CORRECT_PIXELS, ImagePair, score_all
from doap.evaluation.image_pairs.tables import compare_all, pairs_tables
from doap.evaluation.metrics import significance as statistics
from doap.networks.registry import DEFAULT_MODEL

EXAMPLE = (
    f"Example: doap eval pairs --data my-pairs/ --models {DEFAULT_MODEL} sift --json scores.json --pictures matches/"
)


def pairs(
    data: Annotated[
        Path,
        typer.Option(
            help="A folder with a pairs.csv (first,second,truth), or of image sequences, or of folders with two "
            "pictures and H.txt or points.csv each."
        ),
    ],
    models: Models = None,
    detector: Detector = "dog",
    extent: Extent = "own",
    keypoints: Keypoints = 2000,
    geometry: Annotated[
        Shared, typer.Option(help="Of labelled points: fundamental for any scene, homography for a plane.")
    ] = Shared.fundamental,
    pictures: Annotated[
        Path | None, typer.Option(help="Draw the first model's verified matches of each pair into this folder.")
    ] = None,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    figure: FigureFile = None,
    device: Device = None,
    fresh: NoCache = False,
) -> None:
    """Match your own image pairs, whose homography is known or in which points are labelled.

    Measured are AP, how many matches are right to 1, 3, 5 and 10 pixels, how many agree on a geometry, and in
    how many pairs that geometry is right.
    """
    check_outputs(figure)
    check_detector(detector)
    found = find_pairs(data)
    methods = methods_from(models, device, fresh, extent_from(extent), detector)
    reader = PairReader(detector, keypoints, geometry.value)
    failures: list[str] = []
    with counting_bar() as bar:
        task = bar.add_task("matching", total=len(found) * len(methods))

        def opened() -> Iterator[ImagePair]:
            for files in found:
                try:
                    pair = reader.open(files)
                except DoapError as error:
                    failures.append(str(error))
                    bar.advance(task, len(methods))
                    continue
                if pictures:
                    draw_pair(pair, methods[0], pictures / f"{_file_name(pair)}.png")
                yield pair

        scores = score_all(opened(), methods, lambda: bar.advance(task))
    if not scores:
        raise DoapError(failures[0] if len(failures) == 1 else f"no pair can be read: {'; '.join(failures)}")
    result = Result(
        benchmark="pairs",
        settings={
            "data": str(data),
            "detector": detector,
            "extent": extent,
            "keypoints": keypoints,
            "geometry of labelled points": geometry.value,
            "correspondences": correspondences.RULE,
            "right match": "a correspondence; in scenes known by labelled points alone, one within "
            f"{CORRECT_PIXELS:g} px of its epipolar lines, the mean of both images",
            "right geometry": f"mean error at the corners or labelled points under {CORRECT_PIXELS:g} px",
            "statistics": statistics.RULE,
            "left out": failures,
        },
        methods=[each.about() for each in methods],
        scores=scores,
        comparisons=compare_all(scores),
    )
    for table in pairs_tables(result):
        show_table(table)
    for line in failures:
        say(f"left out: {line}", style="yellow")
    if pictures:
        say(f"matches drawn in {pictures}")
    write_outputs(result, json_file, csv_file, figure, draw_pairs)


def _file_name(pair: ImagePair) -> str:
    """The sequence and the pair, once if they are the same, without what a file's name should not have."""
    words = dict.fromkeys((pair.sequence, pair.name))
    return re.sub(r"[^\w.]+", "-", " ".join(words)).strip("-.")
