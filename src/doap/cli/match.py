"""`doap match`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from doap.cli.console import choose_device, errors, say
from doap.networks import DEFAULT_MODEL
from doap.types import Geometry

if TYPE_CHECKING:
    from doap.features import Features, Matches

EXAMPLE = "Example: doap match left.jpg right.jpg -o matches.png --json matches.json"


def match(
    first: Annotated[Path, typer.Argument(metavar="A", help="First image, in any common format.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Second image.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Picture of the matches to write: .png, .jpg or .pdf.")
    ] = Path("matches.png"),
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write points and geometry to this file.")
    ] = None,
    model: Annotated[str, typer.Option(help="Shipped model, or path of a .safetensors file.")] = DEFAULT_MODEL,
    geometry: Annotated[
        Geometry, typer.Option(help="fundamental: any scene; homography: planar scene or rotating camera.")
    ] = "fundamental",
    max_keypoints: Annotated[int, typer.Option(min=1, help="Number of strongest keypoints per image.")] = 2000,
    threshold: Annotated[float, typer.Option(min=0.01, help="Largest error of an inlier, in pixels.")] = 1.5,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
) -> None:
    """Match two images: detect keypoints, describe, match, verify the geometry.

    Finding no matches is a result, not an error: it is reported, and the exit status is 0.
    """
    from doap.features import detect_and_describe
    from doap.features import match as match_features
    from doap.features.drawing import check_picture_format, draw_matches
    from doap.files import write_text
    from doap.images.reading import read_grey
    from doap.networks.registry import load

    check_picture_format(output)
    descriptor = load(model, choose_device(device))
    images = read_grey(first), read_grey(second)
    with errors.status("detecting, describing, matching"):
        features = [
            detect_and_describe(image, descriptor, max_keypoints, str(path))
            for image, path in zip(images, (first, second), strict=True)
        ]
        matches = match_features(features[0], features[1], geometry, threshold)
    points = matches.verified_points(features[0], features[1])
    inliers = len(points[0])
    title = f"{inliers} verified of {len(matches)} mutual matches ({descriptor.name}, {geometry})"
    draw_matches(*images, *points, title, output)
    if json_file:
        write_text(json_file, json.dumps(_report(first, second, geometry, features, matches), indent=1) + "\n")
    counts = " and ".join(f"{len(f.keypoints)}" for f in features)
    if matches.matrix is None:
        say(f"no matches found: {len(matches)} mutual ones of {counts} keypoints agree on no geometry")
    else:
        say(f"{inliers} verified matches of {len(matches)} mutual ones, {counts} keypoints")
    say(f"drawn in {output}")


def _report(
    first: Path, second: Path, geometry: Geometry, features: list["Features"], matches: "Matches"
) -> dict[str, object]:
    a, b = (f.keypoints[matches.indices[:, side]].tolist() for side, f in enumerate(features))
    return {
        "images": [str(first), str(second)],
        "model": features[0].model,
        "keypoints": [len(f.keypoints) for f in features],
        "geometry": geometry,
        "matrix": None if matches.matrix is None else matches.matrix.tolist(),
        "verified": int(matches.inliers.sum()),
        "matches": [
            {"a": p, "b": q, "distance": distance, "verified": inlier}
            for p, q, distance, inlier in zip(a, b, matches.distances.tolist(), matches.inliers.tolist(), strict=True)
        ],
    }
