"""`doap eval oxford`."""

from pathlib import Path
from typing import Annotated

import typer

from doap.choices import OxfordProtocol
from doap.cli.evaluating.options import (
    CsvFile,
    Device,
    FigureFile,
    JsonFile,
    Models,
    NoCache,
    Outputs,
    open_models,
    run_benchmark,
)
from doap.cli.options.model import FramesOption
from doap.cli.options.pairs import Detector, Extent, check_detector, parse_extent
from doap.networks import DEFAULT_MODEL

EXAMPLE = f"Example: doap eval oxford {DEFAULT_MODEL} sift rootsift --data oxford/ --figure oxford.png"


def oxford(
    data: Annotated[Path, typer.Option(help="Folder of sequences, in the layout of Oxford or HPatches.")],
    models: Models = None,
    detector: Detector = "harris-affine",
    extent: Extent = "3",
    keypoints: Annotated[int, typer.Option(min=0, help="Number of strongest keypoints per image; 0: all.")] = 1000,
    frames: FramesOption = "detected",
    protocol: Annotated[
        OxfordProtocol,
        typer.Option(
            help="Rule of matching. doap: each keypoint proposes its nearest neighbour, correct if it is the one that "
            "corresponds. vlbenchmarks: keypoints are matched one to one; any sufficiently overlapping pair is correct."
        ),
    ] = "doap",
    overlap_error: Annotated[
        float | None,
        typer.Option(help="Overlap error of corresponding keypoints, with --protocol vlbenchmarks. By default 0.5."),
    ] = None,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    figure: FigureFile = None,
    device: Device = None,
    no_cache: NoCache = False,
) -> None:
    """Match the images of the Oxford sequences: the whole pipeline, starting with detection.

    The default detector and extent are those of the paper: Harris-Affine keypoints, all patches extracted at extent 3.
    AP is computed over the matches of a pair ranked by distance. The benchmark that the paper used is --protocol
    vlbenchmarks --detector vlfeat-harris-affine --keypoints 0.
    """
    from doap.evaluation.image_pairs.oxford import Oxford

    outputs = Outputs(json_file, csv_file, figure)
    check_detector(detector)
    factor = parse_extent(extent)
    benchmark = Oxford(data, detector, factor, keypoints or None, protocol, overlap_error, frames)
    methods = open_models(models, device, no_cache, factor, detector)
    run_benchmark(benchmark, methods, outputs)
