"""Files of features and matches: what is written is read, whatever the format; other files are refused in one line."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import doap
from doap.choices import StoredPrecision
from doap.features.storage import FORMAT, read_group, write_group
from doap.types import Kind, Record
from support.random_features import random_features

SUFFIXES = (".npz", ".h5", ".hdf5")


def save_arrays(path: Path, record: Record) -> None:
    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in record.items()}
    np.savez(path, **arrays)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kind", ["real", "binary"])
@pytest.mark.parametrize("count", [0, 1, 50])
def test_features_are_read_as_written(tmp_path: Path, suffix: str, kind: Kind, count: int) -> None:
    features = random_features(count, kind)
    path = tmp_path / "new" / f"image{suffix}"
    features.save(str(path))
    loaded = doap.Features.load(str(path), model="test")
    np.testing.assert_array_equal(loaded.frames, features.frames)
    np.testing.assert_array_equal(loaded.descriptors, features.descriptors)
    np.testing.assert_array_equal(loaded.responses, features.responses)
    assert loaded.descriptors.dtype == features.descriptors.dtype
    assert (loaded.size, loaded.model) == ((480, 640), "test")
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
@pytest.mark.parametrize(("precision", "share", "error"), [("float16", 0.5, 5e-4), ("uint8", 0.25, 0.02)])
def test_reduced_precision_makes_files_smaller(
    tmp_path: Path, suffix: str, precision: StoredPrecision, share: float, error: float
) -> None:
    features = random_features(2000)
    full, reduced = tmp_path / f"full{suffix}", tmp_path / f"reduced{suffix}"
    features.save(full)
    features.save(reduced, precision)
    saved = full.stat().st_size - reduced.stat().st_size
    assert saved == pytest.approx((1 - share) * features.descriptors.nbytes, rel=0.01)
    loaded = doap.Features.load(reduced)
    assert loaded.descriptors.dtype == np.float32
    assert np.linalg.norm(loaded.descriptors - features.descriptors, axis=1).max() < error
    matches = doap.match(features, loaded, geometry=None)
    np.testing.assert_array_equal(matches.indices, np.repeat(np.arange(2000)[:, None], 2, 1))


def test_an_archive_holds_plain_arrays(tmp_path: Path) -> None:
    features = random_features(60)
    features.save(tmp_path / "camera.npz")
    with np.load(tmp_path / "camera.npz", allow_pickle=False) as archive:
        assert set(archive) >= {"frames", "keypoints", "descriptors", "responses", "size", "model", "format"}
        np.testing.assert_array_equal(archive["keypoints"], features.frames[:, :, 2])
        assert archive["size"].tolist() == [480, 640]
        assert str(archive["model"]) == "test"


def test_archives_of_the_first_version_are_read(tmp_path: Path) -> None:
    for kind in ("real", "binary"):
        features = random_features(9, kind)
        np.savez(
            tmp_path / "old.npz",
            frames=features.frames,
            keypoints=features.keypoints,
            descriptors=features.descriptors,
            size=features.size,
            model=features.model,
        )
        loaded = doap.Features.load(tmp_path / "old.npz")
        np.testing.assert_array_equal(loaded.descriptors, features.descriptors)
        assert loaded.responses is None
        assert loaded.size == (480, 640)


def test_a_file_of_a_folder_has_a_group_per_image(tmp_path: Path) -> None:
    path, images = tmp_path / "folder.h5", {"a.jpg": random_features(5), "sub/a.jpg": random_features(7, seed=1)}
    with h5py.File(path, "w") as file:
        for name, features in images.items():
            write_group(file.create_group(name), features.to_record("float16"))
    for name, features in images.items():
        loaded = doap.Features.load(path, "test", image=name)
        np.testing.assert_array_equal(loaded.frames, features.frames)
    with h5py.File(path) as file:
        record = read_group(file["sub/a.jpg"], "sub/a.jpg")
        assert len(doap.Features.from_record(record, "sub/a.jpg")) == 7
    with pytest.raises(doap.DoapError, match=r"folder\.h5: has no b\.jpg"):
        doap.Features.load(path, image="b.jpg")
    with pytest.raises(doap.DoapError, match=r"holds several records; name one, for example image='a\.jpg'"):
        doap.Features.load(path)


def test_matches_and_features_are_not_taken_for_each_other(tmp_path: Path) -> None:
    features, path = random_features(5), tmp_path / "pairs.h5"
    matches = doap.match(features, features)
    with h5py.File(path, "w") as file:
        write_group(file.create_group("a.jpg/b.jpg"), matches.to_record())
    with pytest.raises(doap.DoapError, match=r"holds several records; name one, for example pair='a\.jpg/b\.jpg'"):
        doap.Matches.load(path)
    assert len(doap.Matches.load(path, pair="a.jpg/b.jpg")) == 5
    with pytest.raises(doap.DoapError, match="has no entry 'frames'; these are no features written by doap"):
        doap.Features.load(path, image="a.jpg/b.jpg")
    features.save(tmp_path / "image.npz")
    with pytest.raises(doap.DoapError, match="has no entry 'indices'; these are no matches written by doap"):
        doap.Matches.load(tmp_path / "image.npz")


def test_folders_may_be_called_as_entries_are(tmp_path: Path) -> None:
    path = tmp_path / "folder.h5"
    with h5py.File(path, "w") as file:
        write_group(file.create_group("frames/0001.jpg"), random_features(5).to_record())
    assert len(doap.Features.load(path, image="frames/0001.jpg")) == 5
    with pytest.raises(doap.DoapError, match=r"holds several records; name one, for example image='frames/0001\.jpg'"):
        doap.Features.load(path)
    with pytest.raises(doap.DoapError, match=r"has no frames/0001\.jpg/descriptors"):
        doap.Features.load(path, image="frames/0001.jpg/descriptors")


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_features_of_another_model_or_a_newer_version_are_refused(tmp_path: Path, suffix: str) -> None:
    features, path = random_features(3), tmp_path / f"image{suffix}"
    features.save(path)
    with pytest.raises(doap.DoapError, match=r"image\.\w+: features of test, not of doap-128"):
        doap.Features.load(path, "doap-128")
    with pytest.raises(doap.DoapError, match=r"image\.\w+: features of test, not of doap-demo-128; describe"):
        doap.Features.load(path, doap.load("doap-demo-128"))
    replace(features, model="doap-demo-128").save(path)
    assert len(doap.Features.load(path, doap.load("doap-demo-128"))) == 3
    record = features.to_record() | {"format": FORMAT + 1}
    if suffix == ".npz":
        save_arrays(path, record)
    else:
        with h5py.File(path, "w") as file:
            write_group(file, record)
    with pytest.raises(doap.DoapError, match=rf"format {FORMAT + 1} is newer than this doap, .* update doap"):
        doap.Features.load(path)


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.97])
def test_truncated_files_are_refused(tmp_path: Path, suffix: str, share: float) -> None:
    path = tmp_path / f"image{suffix}"
    random_features(300).save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(doap.DoapError, match=r"image\.\w+: damaged|image\.\w+: has no entry"):
        doap.Features.load(path)


def test_damaged_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "image.npz"
    random_features(300).save(path)
    content = bytearray(path.read_bytes())
    content[5000] ^= 255
    path.write_bytes(content)
    with pytest.raises(doap.DoapError, match=r"image\.npz: damaged"):
        doap.Features.load(path)
    record = random_features(5).to_record()
    damages: Record = {"frames": np.zeros((4, 2, 3), np.float32), "size": np.zeros(3), "descriptors": 1.0}
    for name, value in damages.items():
        save_arrays(path, record | {name: value})
        with pytest.raises(doap.DoapError, match=r"image\.npz: damaged \("):
            doap.Features.load(path)
    np.savez(path, frames=record["frames"])
    with pytest.raises(doap.DoapError, match="has no entry 'descriptors'; these are no features written by doap"):
        doap.Features.load(path)
    np.savez(path, frames=np.array([{}], object))
    with pytest.raises(doap.DoapError, match=r"image\.npz: damaged"):
        doap.Features.load(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", np.array(["a"] * 2000)),
        ("model", 5),
        ("size", np.array(["a", "b"])),
        ("size", np.array([10.5, 20.1])),
        ("size", np.array([0, 10])),
        ("frames", np.full((5, 2, 3), "x")),
        ("frames", np.ones((5, 2, 3), complex)),
        ("frames", 1.0),
        ("descriptors", np.full((5, 8), "x")),
        ("responses", np.full(5, "x")),
        ("responses", 3.0),
        ("precision", np.array(["a", "b"])),
        ("step", np.ones(3)),
        ("step", np.nan),
    ],
)
def test_features_of_other_types_are_damaged(tmp_path: Path, name: str, value: Any) -> None:
    path = tmp_path / "image.npz"
    save_arrays(path, random_features(5).to_record("uint8") | {name: value})
    for model in (None, "test"):
        with pytest.raises(doap.DoapError, match=r"image\.npz: damaged \([^\n]*\); describe the image again$"):
            doap.Features.load(path, model)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("indices", np.full((60, 2), "x")),
        ("indices", 1),
        ("distances", np.full(60, "x")),
        ("second_distances", 1.0),
        ("inliers", np.ones(60)),
        ("inliers", True),
        ("geometry", 5),
        ("geometry", np.array(["a"] * 2000)),
        ("matrix", np.eye(4)),
        ("rotation", "x"),
        ("translation", np.array(["x"] * 3)),
    ],
)
def test_matches_of_other_types_are_damaged(tmp_path: Path, name: str, value: Any) -> None:
    path = tmp_path / "pair.npz"
    features = random_features(60)
    save_arrays(path, doap.match(features, features, geometry=None).to_record() | {name: value})
    with pytest.raises(doap.DoapError, match=r"pair\.npz: damaged \([^\n]*\); match the images again$"):
        doap.Matches.load(path)


def test_a_name_in_an_archive_of_one_record_is_refused(tmp_path: Path) -> None:
    random_features(3).save(tmp_path / "a.npz")
    with pytest.raises(doap.DoapError, match=r"a\.npz: an archive of one record, without names; leave out b\.jpg"):
        doap.Features.load(tmp_path / "a.npz", image="b.jpg")


def test_missing_files_and_other_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(doap.DoapError, match=r"none\.npz: no such file"):
        doap.Features.load(tmp_path / "none.npz")
    for path in (tmp_path / "image.txt", tmp_path / "image"):
        with pytest.raises(doap.DoapError, match=r"are stored as \.npz or \.h5"):
            random_features(3).save(path)
    with pytest.raises(doap.DoapError, match="binary descriptors are stored as they are"):
        random_features(3, "binary").save(tmp_path / "image.npz", "uint8")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_matches_are_read_as_written(tmp_path: Path, suffix: str) -> None:
    random = np.random.default_rng(0)
    camera = np.array([[500, 0, 320], [0, 500, 240], [0, 0, 1.0]])
    first, second = random_features(60), random_features(60)
    plain = doap.match(first, second, geometry=None)
    full = doap.match(first, second, geometry="homography")
    pose = replace(plain, geometry="essential", matrix=camera, rotation=np.eye(3), translation=random.normal(size=3))
    for matches in (plain, full, pose):
        matches.save(str(tmp_path / f"pair{suffix}"))
        loaded = doap.Matches.load(tmp_path / f"pair{suffix}")
        assert loaded.geometry == matches.geometry
        for name in ("indices", "distances", "second_distances", "inliers", "scores"):
            np.testing.assert_array_equal(getattr(loaded, name), getattr(matches, name))
        for name in ("matrix", "rotation", "translation"):
            assert (getattr(loaded, name) is None) == (getattr(matches, name) is None)
            np.testing.assert_array_equal(getattr(loaded, name), getattr(matches, name))
    with pytest.raises(doap.DoapError, match="has no entry 'frames'"):
        doap.Features.load(tmp_path / f"pair{suffix}")
