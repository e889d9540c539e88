"""Retrieval by vocabularies of ORB and of binary models: images of the same scene, by DBoW2's L1 score.

    python benchmarks/dbow.py --train photos/ --test oxford/ hpatches-sequences/ --features dbow-features/

Every folder has one folder per scene. From each scene, four images are taken, evenly spaced, reduced to 640 pixels,
with 500 keypoints: models describe those of ORB and those of DoG. The trees are trained on every other scene of
--train. Two sets of images are tested: those of --test, and those of the remaining scenes of --train. Each image is a
query among all others of its set, those of its scene are relevant. Recall@K is the number of relevant images among the
first K, divided by the number that could be among them. Features are kept in --features. Writes
benchmarks/results/dbow.json.

    python benchmarks/dbow.py --train photos/ --thresholds

prints the thresholds that correspond to ORB's, from the first image of every fourth scene.

    python benchmarks/dbow.py --speed

trains a tree on a million random descriptors in 5,000 clusters (k = 10, L = 6), and prints time and memory.
"""

import argparse
import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

import doap
from doap.bridges.dbow import BagOfWords, Vocabulary, calibrate_thresholds, score, train_vocabulary
from doap.features import describe_keypoints
from doap.features.image_input import shrink_image
from doap.folders import DescribeSettings, FeatureCollection, describe_folder, find_images
from doap.images.reading import PHOTO_SUFFIXES, read_grey
from doap.networks.descriptor import Descriptor
from doap.types import Grey
from machine import RESULTS, device_name

MODELS = ["doap-tiny-256b", "doap-256b"]
IMAGES, KEYPOINTS, MAX_SIZE = 4, 500, 640  # images per scene
BRANCHING, LEVELS = 10, (3, 4, 5)
RANKS = (1, 3)

Bits = NDArray[np.uint8]
Scenes = dict[str, list[Path]]
"""Images of each scene."""

Described = dict[str, list[Bits]]
"""Descriptors of the images of each scene."""


def find_scenes(folders: list[Path]) -> Scenes:
    """Return IMAGES images of every scene, evenly spaced."""
    scenes = {}
    for folder in folders:
        for scene in sorted(path for path in folder.iterdir() if path.is_dir()):
            images = sorted(path for path in scene.iterdir() if path.suffix in PHOTO_SUFFIXES)
            chosen = np.unique(np.linspace(0, len(images) - 1, min(IMAGES, len(images))).round().astype(int))
            scenes[f"{folder.name}/{scene.name}"] = [images[index] for index in chosen]
    return {name: images for name, images in scenes.items() if len(images) > 1}


def detect_orb(path: Path) -> tuple[Grey, list[cv2.KeyPoint], Bits]:
    """Return an image as it is described, and ORB's keypoints and descriptors."""
    image = np.asarray(shrink_image(read_grey(path), MAX_SIZE))
    keypoints, descriptors = cv2.ORB.create(KEYPOINTS).detectAndCompute(image, None)
    bits = np.zeros((0, 32), np.uint8) if descriptors is None else np.asarray(descriptors, np.uint8)
    return image, list(keypoints), bits


def describe_orb_keypoints(model: Descriptor, scenes: Scenes) -> Described:
    """Return a model's descriptors of ORB's keypoints, by scene."""
    described = {}
    for scene, paths in scenes.items():
        detected = [detect_orb(path) for path in paths]
        described[scene] = [
            describe_keypoints(image, keypoints, model, extent=model.extent_for("orb")).descriptors
            for image, keypoints, _ in detected
        ]
    return described


def describe_model(model: str, scenes: Scenes, folder: Path, device: str) -> Described:
    """Return a model's descriptors of DoG keypoints, by scene; they are kept in a folder."""
    settings = DescribeSettings(model, max_keypoints=KEYPOINTS, max_size=MAX_SIZE)
    images = [path for scene in scenes.values() for path in scene]
    describe_folder(images, folder / model, settings, device=device)
    names = {image.path.resolve(): image.name for image in find_images(images)}
    collection = FeatureCollection(folder / model)
    return {scene: [collection[names[path.resolve()]].descriptors for path in paths] for scene, paths in scenes.items()}


def measure(vocabulary: Vocabulary, test: Described) -> dict[str, float]:
    """Return mAP and recalls in percent of the retrieval of the scene of each image."""
    bags: list[BagOfWords] = [vocabulary.transform(one) for images in test.values() for one in images]
    scenes = np.repeat(np.arange(len(test)), [len(images) for images in test.values()])
    precisions, recalls = [], []
    for query, bag in enumerate(bags):
        others = np.delete(np.arange(len(bags)), query)
        order = others[np.argsort([-score(bag, bags[other]) for other in others], kind="stable")]
        relevant = scenes[order] == scenes[query]
        ranks = np.flatnonzero(relevant) + 1
        precisions.append(float(np.mean(np.arange(1, len(ranks) + 1) / ranks)))
        recalls.append([relevant[:rank].sum() / min(rank, len(ranks)) for rank in RANKS])
    values = {"mAP": np.mean(precisions)}
    values |= {f"recall@{rank}": value for rank, value in zip(RANKS, np.mean(recalls, 0), strict=True)}
    return {name: round(100 * float(value), 1) for name, value in values.items()}


def describe(scenes: Scenes, models: list[str], features: Path, device: str) -> Iterator[tuple[str, str, Described]]:
    """Yield the name of a descriptor, the name of its keypoints, and the descriptors of all images by scene."""
    yield "orb", "orb", {scene: [detect_orb(path)[2] for path in paths] for scene, paths in scenes.items()}
    for model in models:
        yield model, "orb", describe_orb_keypoints(doap.load(model, device), scenes)
        yield model, "dog", describe_model(model, scenes, features, device)


def compare(
    train: Scenes, tests: dict[str, Scenes], models: list[str], features: Path, device: str
) -> list[dict[str, object]]:
    """Return one row per descriptor, depth and test set."""
    every = train | {scene: images for test in tests.values() for scene, images in test.items()}
    rows: list[dict[str, object]] = []
    for descriptor, keypoints, described in describe(every, models, features, device):
        for levels in LEVELS:
            vocabulary = train_vocabulary([one for scene in train for one in described[scene]], BRANCHING, levels)
            for test, scenes in tests.items():
                result = measure(vocabulary, {scene: described[scene] for scene in scenes})
                names = {"descriptor": descriptor, "keypoints": keypoints, "test": test, "L": levels}
                rows.append({**names, "words": len(vocabulary), **result})
                print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    return rows


def print_thresholds(scenes: Scenes, models: list[str], device: str) -> None:
    """Print the thresholds of models, with the shares of wrong and correct pairs in percent."""
    images = [paths[0] for paths in list(scenes.values())[::4]]
    for name in models:
        thresholds = calibrate_thresholds(images, doap.load(name, device))
        for descriptor, label, threshold, wrong, correct in thresholds.table():
            print(f"{len(images)} images, {name}: {descriptor} {label} {threshold}, ", end="")
            print(f"wrong {100 * wrong:.3f}, correct {100 * correct:.1f}", flush=True)


def measure_speed() -> None:
    """Train on 1,000 images of 1,000 descriptors and print the seconds and the memory."""
    random = np.random.default_rng(0)
    centres = random.integers(0, 256, (5000, 32), np.uint8)
    images = []
    for _ in range(1000):
        noise = np.packbits(random.random((1000, 256)) < 0.15, axis=1)
        images.append(centres[random.integers(0, len(centres), 1000)] ^ noise)
    start, processor = time.perf_counter(), time.process_time()
    vocabulary = train_vocabulary(images)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{vocabulary} in {seconds:.0f} s, {processor:.0f} s of CPU time, {memory:.0f} MiB; {device_name('cpu')}")


def main() -> None:
    """Compare the descriptors, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, help="folder of scenes")
    parser.add_argument("--test", type=Path, nargs="+", help="folders of scenes, together one test set")
    parser.add_argument("--features", type=Path, default=Path("dbow-features"), help="folder for the features")
    parser.add_argument("--models", nargs="+", default=MODELS, help="binary models beside ORB")
    parser.add_argument("--device", default="cpu", help="device on which the models describe")
    parser.add_argument("--thresholds", action="store_true", help="calibrate thresholds instead")
    parser.add_argument("--speed", action="store_true", help="measure the training of a large tree instead")
    options = parser.parse_args()
    if options.speed:
        measure_speed()
        return
    images_by_scene = find_scenes([options.train])
    if options.thresholds:
        print_thresholds(images_by_scene, options.models, options.device)
        return
    scenes = list(images_by_scene.items())
    train, rest = dict(scenes[::2]), dict(scenes[1::2])
    tests = {"test": find_scenes(options.test), "other scenes": rest}
    counts = {name: [len(test), sum(map(len, test.values()))] for name, test in {"train": train, **tests}.items()}
    rows = compare(train, tests, options.models, options.features, options.device)
    target = RESULTS / "dbow.json"
    content = {"keypoints": KEYPOINTS, "max_size": MAX_SIZE, "k": BRANCHING, "scenes and images": counts, "rows": rows}
    target.write_text(json.dumps(content, indent=1) + "\n")
    print(f"written to {target}")


if __name__ == "__main__":
    main()
