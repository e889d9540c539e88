"""`doap eval oxford`."""

from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import counting_bar
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
from doap.cli.pair_options import Detector, Extent, Keypoints, check_detector, extent_from
from doap.evaluation.harness.result import Result
from doap.evaluation.image_pairs import correspondences
from doap.evaluation.image_pairs.oxford import PAPER_DETECTOR, PAPER_EXTENT, PAPER_SEQUENCES, find_oxford
from doap.evaluation.image_pairs.oxford_figure import draw_oxford
from doap.evaluation.image_pairs.reading import PairReader
from doap.evaluation.image_pairs.scoring import score_all
from doap.evaluation.image_pairs.tables import compare_all, oxford_tables
from doap.evaluation.metrics import significance as statistics
from doap.networks.registry import DEFAULT_MODEL

EXAMPLE = f"Example: doap eval oxford --data oxford/ --models {DEFAULT_MODEL} sift rootsift --figure oxford.png"


def oxford(
    data: Annotated[Path, typer.Option(help="The folder of the sequences, in the layout of Oxford or HPatches.")],
    models: Models = None,
    detector: Detector = PAPER_DETECTOR,
    extent: Extent = f"{PAPER_EXTENT:g}",
    keypoints: Keypoints = 1000,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    figure: FigureFile = None,
    device: Device = None,
    fresh: NoCache = False,
) -> None:
    """Match the images of the Oxford sequences: the whole pipeline, from detection on.

    By default as in the paper: Harris-Affine keypoints, all patches cut at extent 3. Each keypoint of the first
    image proposes its nearest neighbour in the other, and AP is computed over the proposals ranked by distance.
    """
    check_outputs(figure)
    check_detector(detector)
    found = find_oxford(data)
    methods = methods_from(models, device, fresh, extent_from(extent), detector)
    reader = PairReader(detector, keypoints)
    with counting_bar() as bar:
        task = bar.add_task("matching", total=len(found) * len(methods))
        scores = score_all(map(reader.open, found), methods, lambda: bar.advance(task))
    result = Result(
        benchmark="oxford",
        settings={
            "data": str(data),
            "detector": detector,
            "extent": extent,
            "keypoints": keypoints,
            "correspondences": correspondences.RULE,
            "statistics": statistics.RULE,
            "paper's six": PAPER_SEQUENCES,
        },
        methods=[each.about() for each in methods],
        scores=scores,
        comparisons=compare_all(scores),
    )
    for table in oxford_tables(result):
        show_table(table)
    write_outputs(result, json_file, csv_file, figure, draw_oxford)
