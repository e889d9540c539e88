"""`doap eval oxford`."""

from pathlib import Path
from typing import Annotated

import typer

from doap.cli.eval_options import (
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
from doap.cli.pair_options import Detector, Extent, Keypoints, check_detector, parse_extent
from doap.networks import DEFAULT_MODEL

EXAMPLE = f"Example: doap eval oxford {DEFAULT_MODEL} sift rootsift --data oxford/ --figure oxford.png"


def oxford(
    data: Annotated[Path, typer.Option(help="Folder of sequences, in the layout of Oxford or HPatches.")],
    models: Models = None,
    detector: Detector = "harris-affine",
    extent: Extent = "3",
    keypoints: Keypoints = 1000,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    figure: FigureFile = None,
    device: Device = None,
    no_cache: NoCache = False,
) -> None:
    """Match the images of the Oxford sequences: the whole pipeline, starting with detection.

    The defaults are those of the paper: Harris-Affine keypoints, all patches extracted at extent 3. Each keypoint of
    the first image proposes its nearest neighbour in the other; AP is computed over the proposals ranked by distance.
    """
    from doap.evaluation.image_pairs.oxford import Oxford

    outputs = Outputs(json_file, csv_file, figure)
    check_detector(detector)
    factor = parse_extent(extent)
    methods = open_models(models, device, no_cache, factor, detector)
    run_benchmark(Oxford(data, detector, factor, keypoints), methods, outputs)
