"""Train a vocabulary for ORB-SLAM on ORB's keypoints described by a model, calibrate thresholds, retrieve images.

    pip install doap scikit-image
    python examples/slam_vocabulary.py
    python examples/slam_vocabulary.py photos/ --model doap-256b -k 10 -L 6 --keypoints 1000

Without images, crops of photos of scikit-image are used. Writes slam-example/voc.txt, to be passed to ORB-SLAM in place
of ORBvoc.txt. `doap dbow` does the same for DoG keypoints.
"""

import argparse
from pathlib import Path

import cv2
import numpy as np
import skimage
from PIL import Image

import doap
from doap.bridges.dbow import calibrate_thresholds, score, train_vocabulary, write_vocabulary
from doap.folders import find_images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path, nargs="?", help="folder of images")
    parser.add_argument("--model", default="doap-tiny-256b", help="a model of 256 bits")
    parser.add_argument("-k", type=int, default=8)
    parser.add_argument("-L", dest="levels", type=int, default=3)
    parser.add_argument("--keypoints", type=int, default=300, help="keypoints per image")
    parser.add_argument("--output", type=Path, default=Path("slam-example"))
    options = parser.parse_args()
    images = find_images([options.images or write_crops(options.output / "images")])
    model, detect = doap.load(options.model), cv2.ORB.create(options.keypoints).detect
    features = {image.name: doap.detect_and_describe(image.path, model, detector=detect) for image in images}
    vocabulary = train_vocabulary([one.descriptors for one in features.values()], options.k, options.levels)
    write_vocabulary(vocabulary, options.output / "voc.txt")
    print(f"{vocabulary} of {len(images)} images in {options.output / 'voc.txt'}")

    paths = [image.path for image in images[:12]]
    thresholds = calibrate_thresholds(paths, model, detector=detect, max_keypoints=options.keypoints)
    print(f"TH_LOW = {thresholds.low}, TH_HIGH = {thresholds.high} in ORBmatcher.cc, instead of 50 and 100")

    bags = {name: vocabulary.transform(one.descriptors) for name, one in features.items()}
    for query, bag in bags.items():
        scores = {name: score(bag, other) for name, other in bags.items() if name != query}
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
