"""`doap eval warped`."""

from pathlib import Path
from typing import Annotated

import typer

from doap.choices import DEFAULT_DETECTOR, MAX_SEED
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
from doap.networks import DEFAULT_MODEL

EXAMPLE = f"Example: doap eval warped {DEFAULT_MODEL} sift rootsift --data photos/ --json scores.json"


def warped(
    data: Annotated[list[Path], typer.Option(metavar="PHOTO", help="Photo, or folder of photos; repeatable.")],
    models: Models = None,
    copies: Annotated[int, typer.Option(min=1, help="Number of warped copies per photo.")] = 5,
    keypoints: Annotated[int, typer.Option(min=1, help="Number of strongest keypoints per image.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the copies.")] = 0,
    json_file: JsonFile = None,
    csv_file: CsvFile = None,
    figure: FigureFile = None,
    device: Device = None,
    no_cache: NoCache = False,
) -> None:
    """Match photos with copies of themselves under known homographies and light changes.

    Every descriptor describes the same keypoints. Each keypoint of the photo proposes its nearest neighbour in the
    copy; AP is computed over the proposals ranked by distance.
    """
    from doap.evaluation.image_pairs.warped import Warped

    outputs = Outputs(json_file, csv_file, figure)
    methods = open_models(models, device, no_cache, detector=DEFAULT_DETECTOR)
    run_benchmark(Warped(data, copies, keypoints, seed), methods, outputs)
