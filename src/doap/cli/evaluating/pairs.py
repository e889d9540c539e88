"""`doap eval pairs`."""

from pathlib import Path
from typing import Annotated

import typer

from doap.choices import DEFAULT_DETECTOR, Geometry
from doap.cli.console import say
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
from doap.cli.options.pairs import Detector, Extent, Keypoints, check_detector, parse_extent
from doap.networks import DEFAULT_MODEL

EXAMPLE = f"Example: doap eval pairs {DEFAULT_MODEL} sift --data my-pairs/ --json scores.json --drawings matches/"


def pairs(
    data: Annotated[
        Path,
        typer.Option(
            help="Folder with a pairs.csv (first,second,truth), or of image sequences, or of folders with two images "
            "and H.txt or points.csv each."
        ),
    ],
    models: Models = None,
    detector: Detector = DEFAULT_DETECTOR,
    extent: Extent = "own",
    keypoints: Keypoints = 2000,
    geometry: Annotated[
        Geometry, typer.Option(help="Geometry of labelled points: fundamental for any scene, homography for a plane.")
    ] = "fundamental",
    drawings: Annotated[
        Path | None, typer.Option(help="Draw the first model's verified matches of each pair into this folder.")
    ] = None,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    figure: FigureFile = None,
    device: Device = None,
    no_cache: NoCache = False,
) -> None:
    """Match your own image pairs, with a homography or labelled points as ground truth.

    The scores are AP, the share of matches correct to 1, 3, 5 and 10 pixels, the number of inliers of the estimated
    geometry, and the share of pairs whose geometry is correct.
    """
    from doap.evaluation.image_pairs.own_pairs import ImagePairs

    outputs = Outputs(json_file, csv_file, figure)
    check_detector(detector)
    factor = parse_extent(extent)
    methods = open_models(models, device, no_cache, factor, detector)
    run_benchmark(ImagePairs(data, detector, factor, keypoints, geometry, drawings), methods, outputs)
    if drawings:
        say(f"matches drawn in {drawings}")
