"""`doap eval oxford`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from doap.cli.console import counting_bar, say
from doap.cli.eval_options import (
    CsvFile,
    Device,
    FigureFile,
    Fresh,
    JsonFile,
    Models,
    check_outputs,
    contenders_from,
    show_table,
    write_outputs,
)
from doap.cli.pair_options import Detector, Extent, Keypoints, check_detector, extent_from, show_means, show_tests
from doap.evaluation import correspondences, statistics
from doap.evaluation.image_pairs import score_all
from doap.evaluation.oxford import PAPERS_DETECTOR, PAPERS_EXTENT, PAPERS_SIX, by_sequence, find_oxford, mean_of_six
from doap.evaluation.oxford_figure import draw_oxford
from doap.evaluation.pairs import PairReader
from doap.evaluation.result import Result, Score

EXAMPLE = "Example: doap eval oxford --data oxford/ --models doap-demo-128 sift rootsift --figure oxford.png"


def oxford(
    data: Annotated[Path, typer.Option(help="The folder of the sequences, in the layout of Oxford or HPatches.")],
    models: Models = None,
    detector: Detector = PAPERS_DETECTOR,
    extent: Extent = f"{PAPERS_EXTENT:g}",
    keypoints: Keypoints = 1000,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    figure: FigureFile = None,
    device: Device = None,
    fresh: Fresh = False,
) -> None:
    """Match the images of the Oxford sequences: the whole pipeline, from detection on.

    By default as in the paper: Harris-Affine keypoints, all patches cut at extent 3. Each keypoint of the first
    image proposes its nearest neighbour in the other, and AP is computed over the proposals ranked by distance.
    """
    check_outputs(figure)
    check_detector(detector)
    found = find_oxford(data)
    contenders = contenders_from(models, device, fresh, extent_from(extent))
    reader = PairReader(detector, keypoints)
    with counting_bar() as bar:
        task = bar.add_task("matching", total=len(found) * len(contenders))
        scores = score_all(map(reader.open, found), contenders, lambda: bar.advance(task))
    _show_sequences(scores)
    rows = show_means(scores)
    tests = show_tests(scores, rows)
    result = Result(
        benchmark="oxford",
        settings={
            "data": str(data),
            "detector": detector,
            "extent": extent,
            "keypoints": keypoints,
            "correspondences": correspondences.RULE,
            "statistics": statistics.RULE,
            "paper's six": PAPERS_SIX,
        },
        contenders=[each.about() for each in contenders],
        scores=scores,
        comparisons=tests,
    )
    write_outputs(result, json_file, csv_file, figure, draw_oxford)


def _show_sequences(scores: Sequence[Score]) -> None:
    """AP by sequence, best mean first."""
    table = by_sequence(scores)
    sequences = list(next(iter(table.values())))
    means = {name: [float(np.mean(list(values.values()))), mean_of_six(values)] for name, values in table.items()}
    rows = [
        [name, *(f"{table[name][sequence]:.1f}" for sequence in sequences), *(f"{m:.1f}" for m in own if m is not None)]
        for name, own in sorted(means.items(), key=lambda item: -float(item[1][0] or 0))
    ]
    six = set(PAPERS_SIX) <= set(sequences)
    columns = ["descriptor", *(f"{name}*" if name in PAPERS_SIX else name for name in sequences), "mean"]
    show_table("AP %, mean over the pairs of a sequence", [*columns, *(["mean of *"] if six else [])], rows)
    if six:
        say("* the paper's six, by our reading: it names graf and boat")
