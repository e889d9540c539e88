"""Describe and match photos, write a COLMAP database, and print what is in it.

    pip install doap scikit-image
    python examples/colmap_database.py
    python examples/colmap_database.py photos/ --model doap-128 --pairs sequential --reconstruct

Without photos, the stereo pair of scikit-image and a part of it are used. --reconstruct needs pycolmap or the colmap
program.
"""

import argparse
import sqlite3
from contextlib import closing
from pathlib import Path

import skimage
from PIL import Image

from doap.bridges.colmap import PairSettings, ProjectSettings, build_project
from doap.folders import DescribeSettings

PAIRS = """
SELECT first.name, second.name, matches.rows, verified.rows, verified.config FROM matches
JOIN two_view_geometries AS verified USING (pair_id)
JOIN images AS first ON first.image_id = pair_id / 2147483647
JOIN images AS second ON second.image_id = pair_id % 2147483647
"""
KINDS = {1: "none", 2: "calibrated", 3: "uncalibrated", 6: "planar or panoramic"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, nargs="?", help="folder of photos")
    parser.add_argument("--model", default="doap-tiny-256b")
    parser.add_argument("--max-keypoints", type=int, default=2000)
    parser.add_argument("--pairs", choices=["exhaustive", "retrieval", "sequential"], default="exhaustive")
    parser.add_argument("--output", type=Path, default=Path("colmap-example"))
    parser.add_argument("--reconstruct", action="store_true", help="make the sparse model")
    arguments = parser.parse_args()
    photos = arguments.photos or write_photos(arguments.output / "images")
    settings = ProjectSettings(
        DescribeSettings(arguments.model, max_keypoints=arguments.max_keypoints), PairSettings(arguments.pairs)
    )
    project = build_project(photos, arguments.output, settings)
    with closing(sqlite3.connect(project.database)) as database:
        for first, second, matches, verified, kind in database.execute(PAIRS):
            print(f"{first} {second}: {verified} of {matches} matches verified, geometry: {KINDS[kind]}")
    if arguments.reconstruct:
        from doap.bridges.colmap.reconstruction import reconstruct

        model = reconstruct(project.database, photos, arguments.output / "sparse").models[0]
        print(f"{model.registered_images} images and {model.points} points in {arguments.output / 'sparse/0'}")
    verified = sum(project.verified)
    print(f"{project.database}: {project.images} images, {project.keypoints} keypoints, {verified} verified matches")


def write_photos(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    left, right, _ = skimage.data.stereo_motorcycle()
    for name, image in (("left.png", left), ("right.png", right), ("part.png", left[50:450, 100:600])):
        Image.fromarray(image).save(folder / name)
    return folder


if __name__ == "__main__":
    main()
