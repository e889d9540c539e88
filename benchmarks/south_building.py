"""Reconstructions from COLMAP's own SIFT and from the features of doap, by the same mapper, in one run.

    python benchmarks/south_building.py --photos south_building/ -o work/

Rows are kept in the work folder: an interrupted run continues with the next row. The results are written to
benchmarks/results, and the page docs/results-south-building.md and its picture are made from them.

COLMAP's rows use its defaults for extraction, matching and verification on the CPU. The others are what `doap colmap`
does, with its defaults; rootsift shares detector, matching and verification with doap's models. All photos share one
camera of unknown focal length, all pairs are matched, and the mapper has the same options and seed for all rows.
"""

import argparse
import json
import shlex
import shutil
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot
from numpy.typing import NDArray

from doap.bridges.colmap import CameraSettings, ProjectSettings, build_project
from doap.bridges.colmap.program import run_program
from doap.bridges.colmap.reconstruction import MapperEngine, choose_engine, engine_version, reconstruct
from doap.bridges.colmap.statistics import COUNT, POINT, TRACK_ELEMENT
from doap.files import write_text
from doap.folders import FeatureCollection
from doap.parallel.engine import available_cores
from machine import write_result

SIFT = "COLMAP SIFT"
METHODS = (SIFT, "rootsift", "doap-128", "doap-256b", "doap-tiny-128", "doap-tiny-256b")
MIN_INLIERS = 15  # of a pair that COLMAP's mapper uses
SIFT_BYTES = 128
SEED = 0
ACCURATE = 0.5  # pixels
PAGE = Path(__file__).parents[1] / "docs" / "results-south-building.md"
PICTURE = PAGE.parent / "images" / "south-building.png"
PICTURED = (SIFT, "doap-128", "doap-256b")

Row = dict[str, Any]


def main() -> None:
    """Make the missing rows, then the result and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="folder of photos")
    parser.add_argument("-o", "--output", type=Path, required=True, help="work folder")
    parser.add_argument("--engine", choices=("pycolmap", "colmap"), help="the installed one by default")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--note", default="", help="what a reader of this run's times must know, for the page")
    arguments = parser.parse_args()
    engine = choose_engine(arguments.engine)
    rows = [make_row(method, arguments.photos, arguments.output, engine) for method in arguments.methods]
    result = {
        "engine": f"{engine} {engine_version(engine)}",
        "cores": available_cores(),
        "note": arguments.note,
        "rows": rows,
    }
    fewest = min(row["points"] for row in rows)
    for row in rows:
        errors = np.sort(read_points(model_file(row["method"], arguments.output))[:, 3])
        row |= {"accurate_points": int((errors <= ACCURATE).sum()), "best_error": float(errors[:fewest].mean())}
    print(table(rows))
    if set(PICTURED) <= set(arguments.methods):
        target = write_result("south-building", "cpu", result)
        files = sorted(target.parent.glob("south-building-*.json"))
        write_text(PAGE, page({file.name: json.loads(file.read_text()) for file in files}))
        draw([row for row in rows if row["method"] in PICTURED], arguments.output)


def make_row(method: str, photos: Path, output: Path, engine: MapperEngine) -> Row:
    """Return the figures of a method, from the work folder if they are there."""
    folder = work_folder(method, output)
    kept = folder.with_suffix(".json")
    if kept.exists():
        return dict(json.loads(kept.read_text()))
    shutil.rmtree(folder, ignore_errors=True)  # of an interrupted run: its time is unknown
    folder.mkdir(parents=True)
    row = (run_sift if method == SIFT else run_doap)(method, photos, folder, engine)
    start = time.perf_counter()
    summary = reconstruct(folder / "database.db", photos, folder / "sparse", engine=engine, seed=SEED)
    row["mapping_seconds"] = time.perf_counter() - start
    row = {"method": method, **row, **count(folder / "database.db")}
    row["descriptor_bytes"] = row["bytes"] * row["keypoints"]
    row |= {**asdict(summary.models[0]), "models": len(summary.models)}
    write_text(kept, json.dumps(row, indent=1) + "\n")
    print(f"{method}: {row['registered_images']} photos, {row['points']} points")
    return row


def work_folder(method: str, output: Path) -> Path:
    """Return the folder of a row."""
    return output / method.lower().replace(" ", "-")


def model_file(method: str, output: Path) -> Path:
    """Return the file of the points of the largest model of a row."""
    return work_folder(method, output) / "sparse" / "0" / "points3D.bin"


def run_sift(_: str, photos: Path, folder: Path, engine: MapperEngine) -> Row:
    """Extract and match COLMAP's SIFT on the CPU."""
    extract, match = (
        (_extract_with_pycolmap, _match_with_pycolmap)
        if engine == "pycolmap"
        else (_extract_with_program, _match_with_program)
    )
    start = time.perf_counter()
    extract(folder / "database.db", photos)
    middle = time.perf_counter()
    match(folder / "database.db")
    return {
        "bytes": SIFT_BYTES,
        "features_seconds": middle - start,
        "matching_seconds": time.perf_counter() - middle,
    }


def _extract_with_program(database: Path, photos: Path) -> None:
    options: dict[str, int | Path] = {"database_path": database, "image_path": photos}
    options |= {"ImageReader.single_camera": 1}
    # Options of the GPU are named differently since version 3.12.
    preferences = {"SiftExtraction.use_gpu": 0, "FeatureExtraction.use_gpu": 0, "random_seed": SEED}
    run_program("feature_extractor", options, preferences)


def _match_with_program(database: Path) -> None:
    preferences = {"SiftMatching.use_gpu": 0, "FeatureMatching.use_gpu": 0, "random_seed": SEED}
    run_program("exhaustive_matcher", {"database_path": database}, preferences)


def _extract_with_pycolmap(database: Path, photos: Path) -> None:
    import pycolmap

    options = pycolmap.FeatureExtractionOptions()
    options.use_gpu = False
    pycolmap.extract_features(
        database,
        photos,
        camera_mode=pycolmap.CameraMode.SINGLE,
        extraction_options=options,
        device=pycolmap.Device.cpu,
    )


def _match_with_pycolmap(database: Path) -> None:
    import pycolmap

    pycolmap.set_random_seed(SEED)
    options = pycolmap.FeatureMatchingOptions()
    options.use_gpu = False
    pycolmap.match_exhaustive(database, matching_options=options, device=pycolmap.Device.cpu)


def run_doap(method: str, photos: Path, folder: Path, _: MapperEngine) -> Row:
    """Describe and match as `doap colmap` does."""
    defaults = ProjectSettings()
    settings = replace(
        defaults,
        describe=replace(defaults.describe, model=method),
        cameras=CameraSettings(mode="single"),
    )
    started: dict[str, float] = {}

    def note_start(step: str, *_: int | None) -> None:
        started.setdefault(step, time.perf_counter())

    start = time.perf_counter()
    build_project(photos, folder, settings, progress=note_start)
    end = time.perf_counter()
    features = FeatureCollection(folder / "features")
    descriptors = features[features.names[0]].descriptors
    return {
        "bytes": descriptors.shape[1] * descriptors.itemsize,
        "features_seconds": started["matching"] - start,
        "matching_seconds": end - started["matching"],
    }


def count(database: Path) -> Row:
    """Return the numbers of photos, keypoints, and pairs with verified matches."""
    with closing(sqlite3.connect(database)) as connection:
        photos, keypoints = connection.execute("SELECT COUNT(*), SUM(rows) FROM keypoints").fetchone()
        query = "SELECT COUNT(*), SUM(rows) FROM two_view_geometries WHERE rows >= ?"
        pairs, matches = connection.execute(query, (MIN_INLIERS,)).fetchone()
    return {"photos": photos, "keypoints": keypoints, "verified_pairs": pairs, "verified_matches": matches}


def table(rows: list[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| features | keypoints per photo | photos | points | observations | track length | reprojection error "
        "| of the most accurate | points up to 0.5 px "
        "| bytes per descriptor | all descriptors | features | matching | mapping |",
        "|---|" + "---:|" * 13,
    ]
    for row in rows:
        cells = (
            row["method"],
            f"{row['keypoints'] / row['photos']:,.0f}",
            f"{row['registered_images']} of {row['photos']}",
            f"{row['points']:,}",
            f"{row['observations']:,}",
            f"{row['mean_track_length']:.2f}",
            f"{row['mean_reprojection_error']:.3f} px",
            f"{row['best_error']:.3f} px",
            f"{row['accurate_points']:,}",
            f"{row['bytes']}",
            f"{row['descriptor_bytes'] / 1e6:.0f} MB",
            *(f"{row[f'{step}_seconds']:.0f} s" for step in ("features", "matching", "mapping")),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(rows: list[Row], output: Path) -> None:
    """Draw the points of models, each seen along the direction in which they are spread least."""
    figure, axes = pyplot.subplots(1, len(rows), figsize=(4.5 * len(rows), 3.4), squeeze=False)
    for axis, row in zip(axes[0], rows, strict=True):
        points = read_points(model_file(row["method"], output))
        centred = points[points[:, 3] < 1, :3]
        centred = centred - np.median(centred, 0)
        distances = np.linalg.norm(centred, axis=1)
        near = centred[distances < np.quantile(distances, 0.9)]
        across, down = np.linalg.svd(near - near.mean(0), full_matrices=False)[2][:2]
        axis.scatter(near @ across, near @ down, s=0.4, c="black", linewidths=0)
        axis.set_title(
            f"{row['method']}: {row['points']:,} points, {row['mean_reprojection_error']:.3f} px", fontsize=9
        )
        axis.set_aspect("equal")
        axis.axis("off")
    figure.savefig(PICTURE, dpi=110, bbox_inches="tight")


def read_points(path: Path) -> NDArray[np.float64]:
    """Read the positions and reprojection errors of the points of a COLMAP model, (N, 4)."""
    data = path.read_bytes()
    (number,), offset, points = COUNT.unpack_from(data), COUNT.size, []
    for _ in range(number):
        _, x, y, z, _, _, _, error, length = POINT.unpack_from(data, offset)
        points.append((x, y, z, error))
        offset += POINT.size + TRACK_ELEMENT * length
    return np.array(points)


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page of the documentation.

    Args:
        results: Results by their files in benchmarks/results.
    """
    settings = ProjectSettings()
    photos = next(iter(results.values()))["rows"][0]["photos"]
    return f"""# Reconstruction of the South Building

<!-- generated by benchmarks/south_building.py; do not edit -->

{photos} of the photos that COLMAP's authors publish, reduced to 800x600 pixels, grey. The rows of a table are those of
one run, which may have been interrupted between rows.

- **{SIFT}**: extraction, exhaustive matching and verification of COLMAP on the CPU with its defaults: peak threshold
  0.0067, ratio 0.8, distance 0.7, cross check, 4 pixels. Of too many keypoints it keeps the largest.
- **The others**: `doap colmap` with its defaults: responses from {settings.describe.min_response:.4f}, mutual nearest
  neighbours, ratio {settings.match.ratio}, keypoints refined by their matches, errors up to {settings.max_error} of the
  longer side, pairs of photos with at least {settings.min_share:.0%} of the matches of the best pairs or confirmed by
  others. Of too many keypoints it keeps the strongest. rootsift, stored as float32, differs from the models by the
  descriptor only.

![Points of three models](images/{PICTURE.name})

Front and back of this symmetric building look alike: look at models before you trust their figures. From above, it is
a rectangle. With `--min-share 0`, so many pairs of a front and a back photo are verified that both sides lie on one
another: this scene is the reason for the option. The values of ratio, refinement and error were selected on other
photos; that of `--min-share` is the largest that costs none of their matches. The rule by which other pairs confirm a
pair was made with the wrong pairs of this scene in view; its tolerances were not varied.

All photos share one camera of unknown focal length. The mapper and its options are the same for all rows; figures are
those of the largest model. The reprojection error is the mean over the points; the next column is the mean over the
most accurate of them, as many for all rows as the smallest model has: more points that are harder to match raise the
first, not the second. Features are detection and description; matching includes verification and refinement. Rows are
made one after the other: their times compare only as far as nothing else ran on the machine.

doap-128, doap-256b and doap-tiny-128 register all photos and triangulate more points than SIFT. The error of their
points is higher than SIFT's, but lower for as many points. rootsift and doap-tiny-256b lose the connection between both
halves of the walk.
{"".join(section(result, name) for name, result in results.items())}"""


def section(result: Mapping[str, Any], name: str) -> str:
    """Return the section of a result."""
    methods = [row["method"] for row in result["rows"]]
    note = f" {result['note']}" if result["note"] else ""
    selection = "" if tuple(methods) == METHODS else f" --methods {shlex.join(methods)}"
    return f"""
## {result["engine"]}, {result["cores"]} cores

```
python benchmarks/south_building.py --photos south_building/ -o work/{selection}
```

on {result["device"]} ([results](../benchmarks/results/{name})).{note}

{table(result["rows"])}
"""


if __name__ == "__main__":
    main()
