"""Matching of many pairs: the same as pair by pair, resumable, whatever the file holds."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

from doap.errors import DoapError
from doap.features import Matches, match
from doap.folders import FeatureCollection, MatchCollection, MatchSettings, all_pairs, describe_folder, match_pairs
from doap.folders.match_store import group_name, pair_of
from folders.conftest import SETTINGS

PLAIN = MatchSettings(geometry="homography", ratio=0.95)


@pytest.fixture(scope="session")
def matched(described: Path) -> Path:
    path = described.parent / "matches.h5"
    match_pairs(described, all_pairs(FeatureCollection(described).names), path, PLAIN, workers=1)
    return path


def test_matches_are_those_of_the_pairs_one_by_one(described: Path, matched: Path) -> None:
    features, matches = FeatureCollection(described), MatchCollection(matched)
    assert matches.pairs == all_pairs(features.names)
    for first, second in matches.pairs:
        expected = match(features[first], features[second], geometry="homography", ratio=0.95)
        stored = matches[first, second]
        np.testing.assert_array_equal(stored.indices, expected.indices)
        np.testing.assert_allclose(stored.distances, expected.distances, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(stored.inliers, expected.inliers)
        assert (stored.matrix is None) == (expected.matrix is None)
        assert matches.verified_counts()[first, second] == expected.inliers.sum()
    assert matches.verified_counts()["a.png", "b c/a.png"] > 30
    assert matches.verified_counts()["a.png", "d/y.jpg"] == 0


def test_the_file_is_plain_hdf5(matched: Path) -> None:
    with h5py.File(matched) as file:
        group = file["a.png/b c%2Fa.png"]
        assert group["indices"].shape == (len(group["distances"]), 2)
        assert {"indices", "distances", "second_distances", "inliers", "matrix"} <= set(group)
        assert group.attrs["geometry"] == "homography"
        np.testing.assert_allclose(group["matrix"][:2, 2], [-30, -40], atol=1.5)  # as the crops were cut
    assert len(Matches.load(matched, pair="a.png/b c%2Fa.png")) > 30


def test_collections_are_searched_and_iterated(described: Path, matched: Path) -> None:
    features, matches = FeatureCollection(described), MatchCollection(matched)
    assert list(features) == features.names
    assert list(matches) == matches.pairs
    assert "a.png" in features
    assert "other.png" not in features
    assert ("a.png", "b c/a.png") in matches
    assert ["a.png", "b c/a.png"] in matches  # as match_pairs and indexing take it
    assert ("b c/a.png", "a.png") not in matches
    assert "a.png" not in matches


def test_names_of_groups_are_unique() -> None:
    names = ["a/b", "a", "b", "a%2Fb", "%", "%25", "a%/b"]
    pairs = [(a, b) for a in names for b in names]
    assert len({group_name(pair) for pair in pairs}) == len(pairs)
    assert [pair_of(group_name(pair)) for pair in pairs] == pairs


def test_only_new_pairs_are_matched(described: Path, matched: Path, tmp_path: Path) -> None:
    pairs = all_pairs(FeatureCollection(described).names)
    target = tmp_path / "m.h5"
    summary = match_pairs(described, pairs[:4], target, PLAIN, workers=1)
    assert (summary.matched, summary.unchanged, len(summary.verified)) == (4, 0, 4)
    summary = match_pairs(described, pairs[2:], target, PLAIN, workers=1)
    assert (summary.matched, summary.unchanged, summary.others) == (8 - 2, 2, 2)
    assert target.read_bytes() == matched.read_bytes()
    assert match_pairs(described, pairs, target, PLAIN, workers=1).matched == 0
    assert target.read_bytes() == matched.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["m.h5"]


def test_pairs_of_changed_images_are_matched_again(photos: Path, tmp_path: Path) -> None:
    features, target = tmp_path / "features", tmp_path / "m.h5"
    describe_folder(photos, features, SETTINGS, workers=1)
    pairs = all_pairs(FeatureCollection(features).names)
    match_pairs(features, pairs, target, PLAIN, workers=1)
    Image.open(photos / "d" / "y.jpg").transpose(Image.Transpose.ROTATE_90).save(photos / "a.png")
    describe_folder(photos, features, SETTINGS, workers=1)
    summary = match_pairs(features, pairs, target, PLAIN, workers=1)
    assert (summary.matched, summary.unchanged) == (4, 6)
    assert MatchCollection(target).verified_counts()["a.png", "d/y.jpg"] > 30


def test_matches_of_other_settings_are_refused(described: Path, tmp_path: Path) -> None:
    pairs = [("a.png", "b c/a.png")]
    match_pairs(described, pairs, tmp_path / "m.h5", PLAIN, workers=1)
    other = dataclasses.replace(PLAIN, ratio=None)
    with pytest.raises(DoapError, match=r"holds matches with ratio = 0.95, not None; .* --force"):
        match_pairs(described, pairs, tmp_path / "m.h5", other, workers=1)
    assert match_pairs(described, pairs, tmp_path / "m.h5", other, workers=1, force=True).matched == 1


def test_matches_of_another_model_are_refused(described: Path, tmp_path: Path) -> None:
    """Pairs that are not matched again would keep the matches of the other model."""
    features, pairs = FeatureCollection(described)["a.png"], [("a", "b")]
    for model in ("one", "two"):
        (tmp_path / model).mkdir()
        for name in "ab":
            dataclasses.replace(features, model=model).save(tmp_path / model / f"{name}.npz")
    match_pairs(tmp_path / "one", pairs, tmp_path / "m.h5", PLAIN, workers=1)
    assert match_pairs(tmp_path / "one", pairs, tmp_path / "m.h5", PLAIN, workers=1).unchanged == 1
    with pytest.raises(DoapError, match=r"holds matches of one; .* --force"):
        match_pairs(tmp_path / "two", pairs, tmp_path / "m.h5", PLAIN, workers=1)
    assert match_pairs(tmp_path / "two", pairs, tmp_path / "m.h5", PLAIN, workers=1, force=True).matched == 1


@pytest.mark.parametrize("wrong", [{"ratio": 2}, {"max_distance": -1}, {"threshold": 0}])
def test_thresholds_are_checked_before_the_output_is_touched(wrong: dict[str, float]) -> None:
    with pytest.raises(DoapError, match=r"ratio|distance|threshold"):
        MatchSettings(**wrong)  # type: ignore[arg-type]


def test_no_geometry_and_the_essential_matrix(described: Path, tmp_path: Path) -> None:
    pairs = [("a.png", "b c/a.png")]
    match_pairs(described, pairs, tmp_path / "none.h5", MatchSettings(geometry=None), workers=1)
    matches = MatchCollection(tmp_path / "none.h5")["a.png", "b c/a.png"]
    assert matches.inliers.all()
    assert matches.matrix is None
    assert len(MatchCollection(tmp_path / "none.h5")[["a.png", "b c/a.png"]]) == len(matches)  # type: ignore[index]
    with pytest.raises(DoapError, match=r"a pair must be the names of two images, not 'a\.png'"):
        MatchCollection(tmp_path / "none.h5")["a.png"]  # type: ignore[index]
    posed = MatchSettings(geometry="essential", intrinsics=(400.0, 400.0, 150.0, 150.0))
    match_pairs(described, pairs, tmp_path / "posed.h5", posed, workers=1)
    matches = MatchCollection(tmp_path / "posed.h5")["a.png", "b c/a.png"]
    assert matches.rotation is None or matches.rotation.shape == (3, 3)
    with pytest.raises(DoapError, match="needs the intrinsics"):
        MatchSettings(geometry="essential")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"geometry": "odd"}, "geometry odd: unknown; choose one of fundamental, homography, essential, or None"),
        ({"intrinsics": (1.0, 1.0, 1.0)}, "intrinsics must be four numbers"),
        ({"intrinsics": (math.nan, 1.0, 1.0, 1.0)}, "not a matrix of intrinsics"),
    ],
)
def test_geometries_are_checked_before_anything_is_matched(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(DoapError, match=message):
        MatchSettings(**{"geometry": "essential", **wrong})


def test_equal_settings_have_one_identity_whatever_the_type_of_their_numbers() -> None:
    camera = (700.0, 710.0, 320.0, 240.0)
    plain = MatchSettings(True, 0.5, 60.0, "essential", 2.0, camera)
    whole = MatchSettings(True, 0.5, 60, "essential", 2, (700, 710, 320, 240))
    of_numpy: list[Any] = [np.True_, np.float32(0.5), np.int64(60), "essential", np.float32(2), np.array(camera)]
    for settings in (whole, MatchSettings(*of_numpy)):
        assert json.dumps(settings.identity()) == json.dumps(plain.identity())  # stamps depend on it
        assert hash(settings) == hash(plain)
    for wrong in ("1,1,1,1", np.eye(3), 7.0, (1.0, 1.0, 1.0, "1")):
        with pytest.raises(DoapError, match="intrinsics must be"):
            MatchSettings(geometry="essential", intrinsics=wrong)  # type: ignore[arg-type]


def test_images_without_keypoints_have_no_matches(photos: Path, tmp_path: Path) -> None:
    Image.new("L", (200, 100), 90).save(photos / "flat.png")
    describe_folder([photos / "flat.png", photos / "a.png"], tmp_path / "f.h5", SETTINGS, workers=1)
    summary = match_pairs(tmp_path / "f.h5", [("a.png", "flat.png")], tmp_path / "m.h5", workers=1)
    assert summary.verified == [0]
    assert len(MatchCollection(tmp_path / "m.h5")["a.png", "flat.png"]) == 0


def test_pairs_may_be_lists_as_of_json_and_rows_of_arrays(described: Path, tmp_path: Path) -> None:
    pair = ("a.png", "b c/a.png")
    pairs: list[Any] = [list(pair), pair, np.array(pair)]
    summary = match_pairs(described, pairs, tmp_path / "m.h5", PLAIN, workers=1)
    assert summary.matched == 1
    assert MatchCollection(tmp_path / "m.h5").pairs == [pair]
    for wrong in (("a.png",), "ab", ("a.png", 3), 5):
        with pytest.raises(DoapError, match="a pair must be the names of two images, not "):
            match_pairs(described, [wrong], tmp_path / "wrong.h5", workers=1)  # type: ignore[list-item]


def test_bad_input_is_one_line(described: Path, photos: Path, tmp_path: Path) -> None:
    pairs = [("a.png", "b c/a.png")]
    with pytest.raises(DoapError, match=r"no features of x.jpg"):
        match_pairs(described, [("a.png", "x.jpg")], tmp_path / "m.h5")
    with pytest.raises(DoapError, match="no pair to match"):
        match_pairs(described, [], tmp_path / "m.h5")
    with pytest.raises(DoapError, match=r"stored in a \.h5 file"):
        match_pairs(described, pairs, tmp_path / "matches")
    with pytest.raises(DoapError, match="no such folder"):
        match_pairs(tmp_path / "nowhere", pairs, tmp_path / "m.h5")
    with pytest.raises(DoapError, match="no features in it"):
        FeatureCollection(photos)
    (tmp_path / "m.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(500))
    with pytest.raises(DoapError, match="damaged or not an HDF5 file"):
        match_pairs(described, pairs, tmp_path / "m.h5")


def test_damaged_features_are_one_line(described: Path, tmp_path: Path) -> None:
    content = bytearray(described.read_bytes())
    for end in (len(content) // 2, 3000, 0):
        damaged = tmp_path / f"{end}.h5"
        damaged.write_bytes(content[:end])
        with pytest.raises(DoapError, match="damaged") as error:
            match_pairs(damaged, [("a.png", "b c/a.png")], tmp_path / "m.h5", workers=1)
        assert "\n" not in str(error.value)


def test_matches_do_not_replace_their_features(described: Path) -> None:
    content = described.read_bytes()
    pairs = all_pairs(FeatureCollection(described).names)
    with pytest.raises(DoapError, match="holds the features that are matched; choose another output"):
        match_pairs(described, pairs, described, force=True)
    assert described.read_bytes() == content
