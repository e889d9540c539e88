"""Files of hloc: their content, and what is refused or not replaced."""

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from bridges.hloc.conftest import NAMES
from doap.bridges.hloc import export_features, export_matches, pair_group
from doap.errors import DoapError
from doap.features import Features
from doap.folders import FeatureCollection, MatchCollection, MatchSettings, all_pairs, match_pairs


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_feature_file_has_what_hloc_reads(described: Path, tmp_path: Path, precision: str) -> None:
    assert export_features(described, tmp_path / "f.h5", precision)  # type: ignore[arg-type]
    collection = FeatureCollection(described)
    with h5py.File(tmp_path / "f.h5") as file:
        for name in NAMES:
            features, group = collection[name], file[name]
            assert set(group) == {"keypoints", "descriptors", "scores", "scales", "oris", "image_size"}
            np.testing.assert_array_equal(group["keypoints"], features.keypoints)
            np.testing.assert_array_equal(group["scores"], features.responses)
            np.testing.assert_array_equal(group["scales"], features.scales)
            assert group["image_size"][()].tolist() == list(features.size[::-1])
            assert group["descriptors"].shape == (256, len(features))
            assert group["descriptors"].dtype == precision
            assert {group[one].dtype for one in ("keypoints", "scores", "scales", "oris")} == {np.dtype(np.float32)}
            np.testing.assert_array_equal(np.packbits(group["descriptors"][()] > 0, axis=0).T, features.descriptors)
        # The noise of one pixel at the size of detection, in pixels of the image; small images were not reduced.
        noise = [file[name]["keypoints"].attrs["uncertainty"] for name in NAMES]
        assert noise == [1, 400 / 250, 400 / 250]


def test_bits_take_few_bytes(described: Path, tmp_path: Path) -> None:
    export_features(described, tmp_path / "f.h5", "float16")
    with h5py.File(tmp_path / "f.h5") as file:
        stored = file["left.png"]["descriptors"]
        assert stored.id.get_storage_size() < stored[()].nbytes / 8


def test_a_match_file_has_what_hloc_reads(described: Path, matched: Path, tmp_path: Path) -> None:
    features, matches = FeatureCollection(described), MatchCollection(matched)
    assert export_matches(matched, described, tmp_path / "m.h5", pairs=tmp_path / "pairs.txt")
    assert export_matches(matches, features, tmp_path / "v.h5", verified=True)
    assert (tmp_path / "pairs.txt").read_text().split() == [name for pair in matches.pairs for name in pair]
    with h5py.File(tmp_path / "m.h5") as file, h5py.File(tmp_path / "v.h5") as verified:
        for pair in matches.pairs:
            group, one = file[pair_group(pair)], matches[pair]
            assert (group["matches0"].dtype, group["matching_scores0"].dtype) == (np.int16, np.float16)
            for rows, indices in ((group, one.indices), (verified[pair_group(pair)], one.indices[one.inliers])):
                expected = np.full(len(features[pair[0]]), -1)
                expected[indices[:, 0]] = indices[:, 1]
                np.testing.assert_array_equal(rows["matches0"], expected)
                assert not rows["matching_scores0"][expected < 0].any()
        scores = file["left.png/sub-right.png"]["matching_scores0"][()]
        pair = "left.png", "sub/right.png"
        np.testing.assert_array_equal(
            scores[matches[pair].indices[:, 0]], (1 - matches[pair].distances / 256).astype(np.float16)
        )
        assert matches[pair].inliers.sum() > 50


def test_files_that_are_up_to_date_are_kept(described: Path, matched: Path, tmp_path: Path) -> None:
    features, matches = tmp_path / "f.h5", tmp_path / "m.h5"
    assert export_features(described, features)
    assert export_matches(matched, described, matches, pairs=tmp_path / "pairs.txt")
    content = features.read_bytes(), matches.read_bytes()
    assert not export_features(described, features)
    assert not export_matches(matched, described, matches, pairs=tmp_path / "pairs.txt")
    assert export_features(described, features, force=True)
    assert (features.read_bytes(), matches.read_bytes()) == content
    assert export_features(described, features, "float16")  # ours, made with other settings
    assert export_matches(matched, described, matches, verified=True)
    assert {path.name for path in tmp_path.iterdir()} == {"f.h5", "m.h5", "pairs.txt"}


def test_files_of_others_are_not_replaced(described: Path, matched: Path, tmp_path: Path) -> None:
    path = tmp_path / "f.h5"
    path.write_bytes(b"words")
    with pytest.raises(DoapError, match="was not written by doap hloc"):
        export_features(described, path)
    with h5py.File(path, "w") as file:
        file["a.png/keypoints"] = np.zeros((1, 2))
    content = path.read_bytes()
    with pytest.raises(DoapError, match="was not written by doap hloc"):
        export_features(described, path)
    assert path.read_bytes() == content
    export_features(described, path, force=True)
    with h5py.File(path, "a") as file:
        file["new/b.png/keypoints"] = np.zeros((1, 2))
    assert not export_features(described, path)
    with pytest.raises(DoapError, match=r"another tool added new/b\.png to it"):
        export_features(described, path, "float16")
    with pytest.raises(DoapError, match="is the file to convert"):
        export_features(described, described, force=True)
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("mine yours\n")
    with pytest.raises(DoapError, match="exists with other pairs"):
        export_matches(matched, described, tmp_path / "m.h5", pairs=pairs)
    assert not (tmp_path / "m.h5").exists()
    export_matches(matched, described, tmp_path / "m.h5", pairs=pairs, force=True)
    assert pairs.read_text().startswith("empty.png left.png\n")


def _save(folder: Path, names: str, model: str = "doap-tiny-256b", count: int = 5, size: int = 32) -> None:
    """Write features of images with random bits."""
    rng = np.random.default_rng(0)
    for name in names.split(","):
        frames = np.tile(np.eye(2, 3, dtype=np.float32), (count, 1, 1))
        bits = rng.integers(0, 256, (count, size), dtype=np.uint8)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Features(frames, bits, (60, 80), model).save(folder / f"{name}.npz")


@pytest.mark.parametrize(("model", "size"), [("doap-256b", 32), ("doap-tiny-256b", 16)])
def test_features_of_several_models_are_refused(tmp_path: Path, model: str, size: int) -> None:
    _save(tmp_path / "f", "a")
    _save(tmp_path / "f", "b", model, size=size)
    with pytest.raises(DoapError, match=f"f: b: features of {model}, others are of doap-tiny-256b"):
        export_features(tmp_path / "f", tmp_path / "f.h5")
    assert not (tmp_path / "f.h5").exists()


@pytest.mark.parametrize(
    ("names", "message"),
    [("a b,c", "'a b': hloc splits names of images at spaces"), ("a/b,a-b,c", "a/b and a-b: hloc writes / as -")],
)
def test_names_that_hloc_would_confuse_are_refused(tmp_path: Path, names: str, message: str) -> None:
    _save(tmp_path / "f", names)
    match_pairs(tmp_path / "f", all_pairs(names.split(",")), tmp_path / "m.h5", workers=1)
    with pytest.raises(DoapError, match=message):
        export_matches(tmp_path / "m.h5", tmp_path / "f", tmp_path / "o.h5", pairs=tmp_path / "pairs.txt")
    assert not (tmp_path / "o.h5").exists()


def test_matches_of_other_features_or_without_geometry_are_refused(tmp_path: Path) -> None:
    _save(tmp_path / "f", "a,b")
    match_pairs(tmp_path / "f", [("a", "b")], tmp_path / "m.h5", MatchSettings(geometry=None), workers=1)
    with pytest.raises(DoapError, match="matched without a geometry"):
        export_matches(tmp_path / "m.h5", tmp_path / "f", tmp_path / "o.h5", verified=True)
    _save(tmp_path / "f", "b", count=7)
    with pytest.raises(DoapError, match="a and b were matched with other features"):
        export_matches(tmp_path / "m.h5", tmp_path / "f", tmp_path / "o.h5")
    (tmp_path / "f" / "b.npz").unlink()
    with pytest.raises(DoapError, match="no features of b"):
        export_matches(tmp_path / "m.h5", tmp_path / "f", tmp_path / "o.h5")
    assert not (tmp_path / "o.h5").exists()


@pytest.mark.parametrize(("column", "index"), [(0, 300), (1, 300), (1, 1 << 20)])
def test_matches_of_keypoints_that_do_not_exist_are_one_line(
    described: Path, matched: Path, tmp_path: Path, column: int, index: int
) -> None:
    shutil.copy(matched, tmp_path / "damaged.h5")
    with h5py.File(tmp_path / "damaged.h5", "r+") as file:
        file["left.png/sub%2Fright.png/indices"][3, column] = index
    with pytest.raises(DoapError, match=r"damaged\.h5: left\.png and sub/right\.png: damaged, .*doap match again"):
        export_matches(tmp_path / "damaged.h5", described, tmp_path / "m.h5")
    assert not (tmp_path / "m.h5").exists()


def test_more_keypoints_than_int16_counts(tmp_path: Path) -> None:
    _save(tmp_path / "f", "a")
    _save(tmp_path / "f", "b", count=33_000)
    features = FeatureCollection(tmp_path / "f")
    np.testing.assert_array_equal(features["a"].descriptors, features["b"].descriptors[:5])
    reverse = features["b"][np.arange(33_000)[::-1]]
    reverse.save(tmp_path / "f" / "b.npz")
    match_pairs(tmp_path / "f", [("a", "b")], tmp_path / "m.h5", MatchSettings(geometry=None), workers=1)
    export_matches(tmp_path / "m.h5", tmp_path / "f", tmp_path / "o.h5")
    with h5py.File(tmp_path / "o.h5") as file:
        assert file["a/b/matches0"][()].tolist() == [32_999 - row for row in range(5)]
