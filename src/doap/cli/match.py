"""`doap match`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from doap.cli.console import choose_device, errors, say
from doap.evaluation.harness.figures import draw_matches
from doap.features import Features, Matches, detect_and_describe
from doap.features import match as match_features
from doap.files import write_text
from doap.images.reading import read_grey
from doap.networks.registry import DEFAULT_MODEL, load

EXAMPLE = "Example: doap match left.jpg right.jpg -o matches.png --json matches.json"


class Shared(StrEnum):
    """What two images may have in common."""

    fundamental = "fundamental"
    homography = "homography"


def match(
    first: Annotated[Path, typer.Argument(metavar="A", help="One picture: any format, depth or colour.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="The other.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Picture of the matches to write.")] = Path(
        "matches.png"
    ),
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write points and geometry here.")] = None,
    model: Annotated[str, typer.Option(help="A shipped model, or the path of a .safetensors file.")] = DEFAULT_MODEL,
    geometry: Annotated[
        Shared, typer.Option(help="fundamental: any scene; homography: a plane or a turning camera.")
    ] = Shared.fundamental,
    max_keypoints: Annotated[int, typer.Option(min=1, help="Strongest keypoints to keep of each picture.")] = 2000,
    threshold: Annotated[float, typer.Option(min=0.01, help="Pixels an inlier may be off.")] = 1.5,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
) -> None:
    """Match two pictures: detect, describe, match, verify.

    Finding no matches is a result, not a error: it is said, and the exit status is 0.
    """
    descriptor = load(model, choose_device(device))
    images = read_grey(first), read_grey(second)
    with errors.status("detecting, describing, matching"):
        features = [
            detect_and_describe(image, descriptor, max_keypoints, str(path))
            for image, path in zip(images, (first, second), strict=True)
        ]
        found = match_features(features[0], features[1], geometry.value, threshold)
    points = found.verified_points(features[0], features[1])
    inliers = len(points[0])
    title = f"{inliers} verified of {len(found)} mutual matches ({descriptor.name}, {geometry.value})"
    draw_matches(*images, *points, title, output)
    if json_file:
        write_text(json_file, json.dumps(_report(first, second, geometry, features, found), indent=1) + "\n")
    counts = " and ".join(f"{len(f.keypoints)}" for f in features)
    if found.matrix is None:
        say(f"no matches found: {len(found)} mutual ones of {counts} keypoints agree on no geometry")
    else:
        say(f"{inliers} verified matches of {len(found)} mutual ones, {counts} keypoints")
    say(f"drawn in {output}")


def _report(first: Path, second: Path, geometry: Shared, features: list[Features], found: Matches) -> dict[str, object]:
    a, b = (f.keypoints[found.indices[:, side]].tolist() for side, f in enumerate(features))
    return {
        "images": [str(first), str(second)],
        "model": features[0].model,
        "keypoints": [len(f.keypoints) for f in features],
        "geometry": geometry.value,
        "matrix": None if found.matrix is None else found.matrix.tolist(),
        "verified": int(found.inliers.sum()),
        "matches": [
            {"a": p, "b": q, "distance": distance, "verified": inlier}
            for p, q, distance, inlier in zip(a, b, found.distances.tolist(), found.inliers.tolist(), strict=True)
        ],
    }
