"""Describe and match photos, write hloc's files, and compare with hloc's own matcher where hloc is installed.

    pip install 'doap[scale]' scikit-image
    python examples/hloc_files.py
    python examples/hloc_files.py photos/ --models doap-128 doap-256b --output outputs

Without photos, the stereo pair and the camera man of scikit-image are used.
"""

import argparse
import importlib
import importlib.util
from pathlib import Path

import h5py
import skimage
from PIL import Image

from doap.bridges.hloc import export_features, export_matches
from doap.folders import (
    DescribeSettings,
    FeatureCollection,
    MatchSettings,
    all_pairs,
    describe_folder,
    match_pairs,
)

HAS_HLOC = importlib.util.find_spec("hloc") is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, nargs="?", help="folder of photos")
    parser.add_argument("--models", nargs="+", default=["doap-tiny-256b"])
    parser.add_argument("--max-keypoints", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=Path("hloc-example"))
    arguments = parser.parse_args()
    photos = arguments.photos or write_photos(arguments.output / "images")
    print("| model | numbers | bytes per keypoint | matches of doap | of hloc | of both |")
    print("|---|---|---:|---:|---:|---:|")
    for model in arguments.models:
        features, matches = arguments.output / f"{model}.h5", arguments.output / f"{model}-matches.h5"
        describe_folder(photos, features, DescribeSettings(model, max_keypoints=arguments.max_keypoints))
        match_pairs(features, all_pairs(FeatureCollection(features).names), matches, MatchSettings(geometry=None))
        for precision in ("float32", "float16"):
            show(features, matches, arguments.output / f"feats-{model}-{precision}.h5", precision)


def write_photos(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    left, right, _ = skimage.data.stereo_motorcycle()
    for name, image in (("left.png", left), ("right.png", right), ("camera.png", skimage.data.camera())):
        Image.fromarray(image).save(folder / name)
    return folder


def show(features: Path, matches: Path, output: Path, precision: str) -> None:
    """Export, let hloc match, and print a row of the table."""
    ours, pairs = output.with_name(f"{output.stem}_matches-doap.h5"), output.with_name("pairs.txt")
    export_features(features, output, "float16" if precision == "float16" else "float32")
    export_matches(matches, features, ours, pairs=pairs)
    collection = FeatureCollection(features)
    size = output.stat().st_size / sum(len(collection[name]) for name in collection.names)
    own = read_matches(ours)
    counts = [str(len(own)), "hloc is not installed", ""]
    if HAS_HLOC:
        match_features = importlib.import_module("hloc.match_features")
        theirs = output.with_name(f"{output.stem}_matches-hloc.h5")
        match_features.main(match_features.confs["NN-mutual"], pairs, output, matches=theirs, overwrite=True)
        others = read_matches(theirs)
        counts[1:] = str(len(others)), str(len(own & others))
    print(f"| {collection[collection.names[0]].model} | {precision} | {size:.0f} | {' | '.join(counts)} |")


def read_matches(path: Path) -> set[tuple[str, int, int]]:
    """Return all matches of a file of hloc: group, keypoint of the first image, keypoint of the second."""
    rows = set()
    with h5py.File(path) as file:
        for first in file:
            for second, group in file[first].items():
                # hloc takes either image of a pair first.
                for a, b in enumerate(group["matches0"][()].tolist()):
                    if b >= 0:
                        rows.add((f"{first} {second}", a, b) if first < second else (f"{second} {first}", b, a))
    return rows


if __name__ == "__main__":
    main()
