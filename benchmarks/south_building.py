"""Reconstructions from COLMAP's own SIFT and from the features of doap, by the same mapper, in one run.

    python benchmarks/south_building.py --photos south_building/ -o work/

Rows are kept in the work folder: an interrupted run continues with the next row. The results are written to
benchmarks/results, and the page docs/results-south-building.md is made from them.

COLMAP's rows use its defaults for extraction, matching and verification on the CPU. The others are what `doap colmap`
does, with its defaults; rootsift shares detector, matching and verification with doap's models. All photos share one
camera of unknown focal length, all pairs are matched, and the mapper has the same options and seed for all rows.
"""

import argparse
import json
import shutil
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from doap.bridges.colmap import CameraSettings, ProjectSettings, build_project
from doap.bridges.colmap.program import run_program
from doap.bridges.colmap.reconstruction import MapperEngine, choose_engine, engine_version, reconstruct
from doap.files import write_text
from doap.folders import FeatureCollection
from doap.parallel.engine import available_cores
from machine import write_result

SIFT = "COLMAP SIFT"
METHODS = (SIFT, "rootsift", "doap-128", "doap-256b", "doap-tiny-128", "doap-tiny-256b")
LIMITS = (8192, 2000)  # keypoints per photo: COLMAP's default, and that of `doap describe`
MIN_INLIERS = 15  # of a pair that COLMAP's mapper uses
SIFT_BYTES = 128
SEED = 0
PAGE = Path(__file__).parents[1] / "docs" / "results-south-building.md"

Row = dict[str, Any]


def main() -> None:
    """Make the missing rows, then the result and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="folder of photos")
    parser.add_argument("-o", "--output", type=Path, required=True, help="work folder")
    parser.add_argument("--engine", choices=("pycolmap", "colmap"), help="the installed one by default")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--limits", nargs="+", type=int, default=LIMITS, help="keypoints per photo")
    arguments = parser.parse_args()
    engine = choose_engine(arguments.engine)
    rows = [
        make_row(method, limit, arguments.photos, arguments.output, engine)
        for limit in arguments.limits
        for method in arguments.methods
    ]
    result = {"engine": f"{engine} {engine_version(engine)}", "cores": available_cores(), "rows": rows}
    print("\n\n".join(table(rows, limit) for limit in arguments.limits))
    if (tuple(arguments.methods), tuple(arguments.limits)) == (METHODS, LIMITS):
        target = write_result("south-building", "cpu", result)
        write_text(PAGE, page(json.loads(target.read_text()), target.name))


def make_row(method: str, limit: int, photos: Path, output: Path, engine: MapperEngine) -> Row:
    """Return the figures of a method, from the work folder if they are there."""
    name = f"{method} {limit}".lower().replace(" ", "-")
    kept = output / f"{name}.json"
    if kept.exists():
        return dict(json.loads(kept.read_text()))
    folder = output / name
    shutil.rmtree(folder, ignore_errors=True)  # of an interrupted run: its time is unknown
    folder.mkdir(parents=True)
    row = (run_sift if method == SIFT else run_doap)(method, limit, photos, folder, engine)
    start = time.perf_counter()
    summary = reconstruct(folder / "database.db", photos, folder / "sparse", engine=engine, seed=SEED)
    row["mapping_seconds"] = time.perf_counter() - start
    row = {"method": method, "limit": limit, **row, **count(folder / "database.db")}
    row["descriptor_bytes"] = row["bytes"] * row["keypoints"]
    row |= {**asdict(summary.models[0]), "models": len(summary.models)}
    write_text(kept, json.dumps(row, indent=1) + "\n")
    print(f"{method}, up to {limit} keypoints: {row['registered_images']} photos, {row['points']} points")
    return row


def run_sift(_: str, limit: int, photos: Path, folder: Path, engine: MapperEngine) -> Row:
    """Extract and match COLMAP's SIFT on the CPU."""
    extract, match = (
        (_extract_with_pycolmap, _match_with_pycolmap)
        if engine == "pycolmap"
        else (_extract_with_program, _match_with_program)
    )
    start = time.perf_counter()
    extract(folder / "database.db", photos, limit)
    middle = time.perf_counter()
    match(folder / "database.db")
    return {
        "bytes": SIFT_BYTES,
        "features_seconds": middle - start,
        "matching_seconds": time.perf_counter() - middle,
    }


def _extract_with_program(database: Path, photos: Path, limit: int) -> None:
    options: dict[str, int | Path] = {"database_path": database, "image_path": photos}
    options |= {"ImageReader.single_camera": 1, "SiftExtraction.max_num_features": limit}
    # Options of the GPU are named differently since version 3.12.
    preferences = {"SiftExtraction.use_gpu": 0, "FeatureExtraction.use_gpu": 0, "random_seed": SEED}
    run_program("feature_extractor", options, preferences)


def _match_with_program(database: Path) -> None:
    preferences = {"SiftMatching.use_gpu": 0, "FeatureMatching.use_gpu": 0, "random_seed": SEED}
    run_program("exhaustive_matcher", {"database_path": database}, preferences)


def _extract_with_pycolmap(database: Path, photos: Path, limit: int) -> None:
    import pycolmap

    options = pycolmap.FeatureExtractionOptions()
    options.use_gpu = False
    options.sift.max_num_features = limit
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


def run_doap(method: str, limit: int, photos: Path, folder: Path, _: MapperEngine) -> Row:
    """Describe and match as `doap colmap` does."""
    defaults = ProjectSettings()
    settings = replace(
        defaults,
        describe=replace(defaults.describe, model=method, max_keypoints=limit),
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


def table(rows: list[Row], limit: int) -> str:
    """Return the rows of a limit as a Markdown table."""
    lines = [
        "| features | keypoints per photo | photos | points | observations | track length | reprojection error "
        "| bytes per descriptor | all descriptors | features | matching | mapping |",
        "|---|" + "---:|" * 11,
    ]
    for row in rows:
        if row["limit"] == limit:
            cells = (
                row["method"],
                f"{row['keypoints'] / row['photos']:,.0f}",
                f"{row['registered_images']} of {row['photos']}",
                f"{row['points']:,}",
                f"{row['observations']:,}",
                f"{row['mean_track_length']:.2f}",
                f"{row['mean_reprojection_error']:.3f} px",
                f"{row['bytes']}",
                f"{row['descriptor_bytes'] / 1e6:.0f} MB",
                *(f"{row[f'{step}_seconds']:.0f} s" for step in ("features", "matching", "mapping")),
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def page(result: Mapping[str, Any], name: str) -> str:
    """Return the page of the documentation of a result that is in the file `name` of benchmarks/results."""
    rows = result["rows"]
    settings = ProjectSettings()
    tables = "\n\n".join(f"## Up to {limit:,} keypoints per photo\n\n{table(rows, limit)}" for limit in LIMITS)
    return f"""# Reconstruction of the South Building

{rows[0]["photos"]} of the photos that COLMAP's authors publish, reduced to 800x600 pixels, grey. In one run of

```
python benchmarks/south_building.py --photos south_building/ -o work/
```

with {result["engine"]} on {result["cores"]} cores ({result["device"]}; [results](../benchmarks/results/{name})).

- **{SIFT}**: extraction, exhaustive matching and verification of COLMAP on the CPU with its defaults: peak threshold
  0.0067, ratio 0.8, distance 0.7, cross check, 4 pixels. Of too many keypoints it keeps the largest.
- **The others**: `doap colmap` with its defaults: responses from {settings.describe.min_response:.4f}, mutual nearest
  neighbours, ratio {settings.match.ratio}, errors up to {settings.max_error} of the longer side. Of too many
  keypoints it keeps the strongest. rootsift, stored as float32, differs from the models by the descriptor only.

All photos share one camera of unknown focal length. The mapper and its options are the same for all rows; figures are
those of the largest model. The reprojection error is the mean over the points. Features are detection and description,
matching includes verification.

{tables}
"""


if __name__ == "__main__":
    main()
