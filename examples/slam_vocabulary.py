"""Train a vocabulary for ORB-SLAM on images, calibrate its thresholds and retrieve similar images.

    pip install doap scikit-image
    python examples/slam_vocabulary.py
    python examples/slam_vocabulary.py photos/ --model doap-256b -k 10 -L 6

Without images, crops of photos of scikit-image are used. Writes slam-example/voc.txt, for
`./mono_tum slam-example/voc.txt …`.
"""

import argparse
from pathlib import Path

import numpy as np
import skimage
from PIL import Image

import doap
from doap.bridges.dbow import build_vocabulary, calibrate_thresholds, read_vocabulary, score
from doap.folders import DescribeSettings, FeatureCollection


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path, nargs="?", help="folder of images")
    parser.add_argument("--model", default="doap-tiny-256b", help="a binary model")
    parser.add_argument("-k", type=int, default=8)
    parser.add_argument("-L", dest="levels", type=int, default=3)
    parser.add_argument("--max-keypoints", type=int, default=300)
    parser.add_argument("--output", type=Path, default=Path("slam-example"))
    options = parser.parse_args()
    images = options.images or write_crops(options.output / "images")
    target = options.output / "voc.txt"

    settings = DescribeSettings(options.model, max_keypoints=options.max_keypoints)
    summary = build_vocabulary(images, target, settings, k=options.k, levels=options.levels, force=True)
    print(f"{summary.vocabulary} from {summary.descriptors:,} descriptors of {len(summary.images)} images in {target}")

    model = doap.load(options.model)
    thresholds = calibrate_thresholds(summary.images[:3], model, max_keypoints=options.max_keypoints)
    print(f"TH_LOW = {thresholds.low}, TH_HIGH = {thresholds.high} in ORBmatcher.cc, instead of 50 and 100")

    vocabulary = read_vocabulary(target)
    features = FeatureCollection(summary.features)
    bags = {name: vocabulary.transform(features[name].descriptors) for name in features.names}
    for query in features.names:
        scores = {name: score(bags[query], bags[name]) for name in features.names if name != query}
        best = max(scores, key=lambda name: scores[name])
        print(f"{query}: most similar {best}, score {scores[best]:.3f}")


def write_crops(folder: Path) -> Path:
    """Write two overlapping crops of each of four photos."""
    folder.mkdir(parents=True, exist_ok=True)
    photos = {
        "astronaut": skimage.data.astronaut(),
        "camera": skimage.data.camera(),
        "coffee": skimage.data.coffee(),
        "coins": skimage.data.coins(),
    }
    for name, photo in photos.items():
        for index, crop in enumerate((photo[:260, :300], photo[40:300, 60:360])):
            Image.fromarray(np.ascontiguousarray(crop)).save(folder / f"{name}-{index}.png")
    return folder


if __name__ == "__main__":
    main()
