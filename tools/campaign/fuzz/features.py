"""Features, matches, pairs of images, results and the files of other tools."""

import struct
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from campaign.fuzz.formats import Format, file_in, text_file
from doap import Features, Matches
from doap.bridges.colmap.cameras import Camera
from doap.bridges.colmap.database import create_database, open_database, pair_id
from doap.bridges.colmap.statistics import read_statistics
from doap.bridges.colmap.two_view import TwoViewGeometry
from doap.bridges.dbow import Vocabulary, read_vocabulary, train_vocabulary, write_vocabulary
from doap.datasets.sets.image_pairs import find_pairs, read_points
from doap.datasets.sets.photo_sources import read_photo_sources
from doap.evaluation.harness.cache import DescriptorCache
from doap.evaluation.harness.result import Result, read_result
from doap.folders import FeatureCollection, MatchCollection
from doap.folders.feature_store import SETTINGS_FILE, FeatureFile, FeatureFolder
from doap.folders.hdf5 import write_sorted
from doap.folders.match_store import group_name
from doap.folders.pairs import read_pairs
from doap.images.frames import frames_from_columns
from doap.report.gather import gather
from doap.types import Record

RESULT = Result(
    benchmark="oxford",
    settings={"data": "some/folder", "keypoints": 1000},
    methods=[{"name": "sift", "bytes": 512}],
    scores=[{"descriptor": "sift", "sequence": "graf", "ap": 12.5, "inliers": 7}],
    curves=[{"descriptor": "sift", "recall": [0.0, 0.5]}],
)
SWEEP = """{"over": "lr", "recipe": "photos-real", "settings": ["epochs=1"], "tests": [], "split": null,
"metric": {"label": "AP", "better": "more", "column": "ap", "factor": 100}, "rows": [{"lr": 0.1, "ap": 0.5}]}"""


def _some_features(seed: int = 0) -> Features:
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(12, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    frames = frames_from_columns(random.uniform((10, 10, 2, 0), (90, 70, 8, 360), (12, 4)))
    return Features(frames, vectors, (80, 100), "test", np.linspace(1, 2, 12, dtype=np.float32))


def _some_matches() -> Matches:
    indices = np.stack([np.arange(6), np.arange(6)[::-1]], 1)
    return Matches(indices, np.linspace(0, 1, 6), np.linspace(1, 2, 6), np.arange(6) % 2 == 0, "homography", np.eye(3))


def _save(name: str) -> Any:
    def make(folder: Path) -> Path:
        (_some_features() if name.startswith("f") else _some_matches()).save(folder / name)
        return folder / name

    return make


def _read_features(file: Path) -> None:
    features = Features.load(file)
    features.to_cv2()
    repr(features)


def _read_matches(file: Path) -> None:
    matches = Matches.load(file)
    repr(matches)


def _feature_record(seed: int) -> Record:
    features = _some_features(seed)
    return {
        "frames": features.frames,
        "descriptors": features.descriptors,
        "size": np.array(features.size),
        "model": features.model,
        "stamp": f"stamp {seed}",
    }


def _feature_file(folder: Path) -> Path:
    import h5py

    with h5py.File(folder / "f.h5", "w") as file:
        file.attrs["settings"] = '{"model": "test"}'
        for number, name in enumerate(("a.png", "b/c.png")):
            write_sorted(file.create_group(name), _feature_record(number))
    return folder / "f.h5"


def _read_feature_file(file: Path) -> None:
    collection = FeatureCollection(file)
    for name in collection.names:
        collection[name]
    store = FeatureFile(file)
    store.open({"model": "test"}, force=False)
    store.stamp("a.png")


def _feature_folder(folder: Path) -> None:
    store = FeatureFolder(folder / "f")
    store.open({"model": "test"}, force=False)
    for number, name in enumerate(("a.png", "b/c.png")):
        store.save(name, _feature_record(number))


def _read_feature_folder(file: Path) -> None:
    folder = next(parent for parent in file.parents if parent.name == "f")
    FeatureFolder(folder).open({"model": "test"}, force=False)
    collection = FeatureCollection(folder)
    FeatureFolder(folder).stamp("a.png")
    for name in collection.names:
        collection[name]


def _match_file(folder: Path) -> Path:
    import h5py

    matches = _some_matches()
    with h5py.File(folder / "m.h5", "w") as file:
        file.attrs["settings"] = '{"ratio": 0.8}'
        record: Record = {
            "indices": matches.indices,
            "distances": matches.distances,
            "second_distances": matches.second_distances,
            "inliers": matches.inliers,
            "geometry": "homography",
            "matrix": np.eye(3),
            "verified": 3,
            "stamp": "s",
        }
        write_sorted(file.create_group(group_name(("a.png", "b/c.png"))), record)
    return folder / "m.h5"


def _read_match_file(file: Path) -> None:
    collection = MatchCollection(file)
    collection.verified_counts()
    for pair in collection.pairs:
        collection[pair]


def _database(folder: Path) -> Path:
    path = folder / "database.db"
    create_database(path, {"model": "test"})
    with open_database(path) as database, database.transaction():
        camera = database.add_camera(Camera(2, 100, 80, (120.0, 50.0, 40.0, 0.0), False))
        for seed, name in enumerate(("a.png", "b.png")):
            image = database.add_image(name, camera)
            database.write_keypoints(image.number, _some_features(seed).frames, f"stamp {seed}")
        matches = np.stack([np.arange(8), np.arange(8)], 1)
        database.write_pair(pair_id(1, 2), matches, TwoViewGeometry(3, np.arange(8) > 1, np.eye(3)))
    return path


def _read_database(file: Path) -> None:
    with open_database(file) as database:
        database.settings()
        database.stamps()
        database.cameras()
        database.keypoint_counts()
        database.verified_counts()
        database.refinement()
        database.images()
        pairs = database.matched()
        for pair in pairs:
            database.verified_points(pair)
        list(database.matches_before_refinement(pairs))


def _model(folder: Path) -> None:
    """Write a sparse model of COLMAP: one image of two points, two points."""
    image = struct.pack("<IdddddddI", 1, 1, 0, 0, 0, 0, 0, 0, 1) + b"a.png\0" + struct.pack("<Q", 2)
    image += struct.pack("<ddqddq", 1, 2, 1, 3, 4, 2)
    points = b"".join(struct.pack("<QdddBBBdQIIII", n, 1, 2, 3, 0, 0, 0, 0.5, 2, 1, 0, 1, 1) for n in (1, 2))
    (folder / "images.bin").write_bytes(struct.pack("<Q", 1) + image)
    (folder / "points3D.bin").write_bytes(struct.pack("<Q", 2) + points)


def _text_model(folder: Path) -> None:
    (folder / "images.txt").write_text("# images\n1 1 0 0 0 0 0 0 1 a.png\n1 2 1 3 4 2\n")
    (folder / "points3D.txt").write_text("# points\n1 1 2 3 0 0 0 0.5 1 0 1 1\n2 1 2 3 0 0 0 0.5 1 0\n")


@cache
def _vocabulary() -> Vocabulary:
    random = np.random.default_rng(1)
    return train_vocabulary([random.integers(0, 256, (30, 32), dtype=np.uint8) for _ in range(4)], k=3, levels=2)


def _write_vocabulary(folder: Path, name: str) -> Path:
    write_vocabulary(_vocabulary(), folder / name)
    return folder / name


def _cached(folder: Path) -> Path:
    values = np.arange(80, dtype=np.float32).reshape(10, 8)
    DescriptorCache(folder).make("key", values.shape, values.dtype, [values])
    return folder / "key.npy"


def _read_cached(file: Path) -> object:
    cached = DescriptorCache(file.parent).get("key")
    return None if cached is None else np.array(cached)


def _result(folder: Path) -> Path:
    RESULT.write_json(folder / "result.json")
    return folder / "result.json"


def _gather(file: Path) -> None:
    gather([file]).keys()


def feature_formats() -> list[Format]:
    """Return the formats of features and of all that is made of them."""
    names = ("a.png", "b c.png", "d.png")
    return [
        Format("features-npz", _save("f.npz"), _read_features),
        Format("features-h5", _save("f.h5"), _read_features),
        Format("matches-npz", _save("m.npz"), _read_matches),
        Format("matches-h5", _save("m.h5"), _read_matches),
        Format("feature-file", _feature_file, _read_feature_file),
        Format("feature-folder-archive", file_in(_feature_folder, "f/a.png.npz"), _read_feature_folder),
        Format(
            "feature-folder-settings",
            file_in(_feature_folder, f"f/{SETTINGS_FILE}"),
            _read_feature_folder,
            is_text=True,
        ),
        Format("match-file", _match_file, _read_match_file),
        Format("descriptor-cache", _cached, _read_cached, is_checked=True),
        Format(
            "pairs-list",
            text_file("pairs.txt", 'a.png "b c.png"\n# remark\na.png d.png\n'),
            partial(read_pairs, names=names),
            is_text=True,
        ),
        Format(
            "pairs.csv",
            text_file("pairs.csv", "first,second,truth,scene\na.png,b.png,H.txt,one\na.png,c.png,p.csv,two\n"),
            lambda file: find_pairs(file.parent),
            is_text=True,
        ),
        Format("points.csv", text_file("points.csv", "x1,y1,x2,y2\n1,2,3,4\n5.5,6,7,8\n"), read_points, is_text=True),
        Format(
            "photos.csv",
            text_file("photos.csv", "archive,file,source,licence\na,b.png,here,CC0\na,c.png,there,CC BY\n"),
            read_photo_sources,
            is_text=True,
        ),
        Format("result", _result, read_result, is_text=True),
        Format("result-report", _result, _gather, is_text=True),
        Format("sweep-report", text_file("sweep.json", SWEEP), _gather, is_text=True),
        Format("colmap-database", _database, _read_database),
        Format("colmap-images", file_in(_model, "images.bin"), lambda file: read_statistics(file.parent)),
        Format("colmap-points", file_in(_model, "points3D.bin"), lambda file: read_statistics(file.parent)),
        Format(
            "colmap-text", file_in(_text_model, "points3D.txt"), lambda file: read_statistics(file.parent), is_text=True
        ),
        *(
            Format(f"vocabulary-{form}", partial(_write_vocabulary, name=f"v.{form}"), read_vocabulary, form[0] in "ty")
            for form in ("txt", "dbow3", "yml", "yml.gz")
        ),
    ]
