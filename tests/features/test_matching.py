"""Matching: every option against a slow search in float64, and real photographs."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import doap
from doap.choices import StoredPrecision
from doap.geometry.homographies import transform_points
from doap.types import Grey, Kind
from support.random_features import random_features
from support.small_models import untrained


def all_distances(first: doap.Features, second: doap.Features) -> NDArray[np.float64]:
    a, b = first.descriptors, second.descriptors
    if a.dtype == np.uint8:
        different = np.bitwise_xor(a[:, None], b[None])
        return np.asarray(np.unpackbits(different, axis=2).sum(2), np.float64)
    return np.asarray(np.linalg.norm(a[:, None].astype(np.float64) - b[None], axis=2))


@pytest.mark.parametrize("kind", ["real", "binary"])
@pytest.mark.parametrize("mutual", [True, False])
@pytest.mark.parametrize(("ratio", "quantile"), [(None, None), (0.95, None), (None, 0.5), (0.97, 0.7)])
def test_matches_are_those_of_a_slow_search(
    kind: Kind, mutual: bool, ratio: float | None, quantile: float | None
) -> None:
    first, second = random_features(80, kind), random_features(120, kind, seed=1)
    distances = all_distances(first, second)
    limit = None if quantile is None else float(np.quantile(distances.min(1), quantile))
    expected = []
    for row, values in enumerate(distances):
        column = int(values.argmin())
        nearest, next_nearest = np.sort(values)[:2]
        if mutual and distances[:, column].argmin() != row:
            continue
        if ratio is not None and not nearest < ratio * next_nearest:
            continue
        if limit is not None and nearest > limit:
            continue
        expected.append((row, column, nearest, next_nearest))
    matches = doap.match(first, second, mutual=mutual, ratio=ratio, max_distance=limit, geometry=None)
    assert len(expected) > 0
    rows, columns, nearest_distances, next_distances = (np.array(values) for values in zip(*expected, strict=True))
    np.testing.assert_array_equal(matches.indices, np.stack([rows, columns], 1))
    np.testing.assert_allclose(matches.distances, nearest_distances, rtol=1e-6)
    np.testing.assert_allclose(matches.second_distances, next_distances, rtol=1e-6)
    np.testing.assert_allclose(matches.scores, 1 - nearest_distances / next_distances, atol=1e-6)
    assert matches.inliers.all()
    assert matches.matrix is None


@pytest.mark.parametrize("kind", ["real", "binary"])
def test_few_features_and_equal_ones_give_no_nan(kind: Kind) -> None:
    one, many, none = random_features(1, kind), random_features(9, kind), random_features(0, kind)
    same = many[[3] * 9]
    for first, second in ((one, many), (many, one), (one, one), (none, many), (many, none), (none, none), (same, same)):
        matches = doap.match(first, second, geometry="fundamental")
        assert not np.isnan(matches.distances).any()
        assert not np.isnan(matches.second_distances).any()
        assert ((matches.scores >= 0) & (matches.scores <= 1)).all()
        assert matches.matrix is None
        assert matches.indices.shape == (len(matches), 2)
    alone = doap.match(many, one, geometry=None)
    assert np.isinf(alone.second_distances).all()
    np.testing.assert_array_equal(alone.scores, 1)
    assert len(doap.match(many, one, ratio=0.5, geometry=None)) == 1
    # Equal descriptors: the first of each is the nearest, and nothing tells them apart.
    equal = doap.match(same, same, geometry=None)
    np.testing.assert_array_equal(equal.indices, [[0, 0]])
    np.testing.assert_array_equal(equal.scores, [0])


def test_features_of_different_models_or_lengths_are_not_matched() -> None:
    first, other = random_features(20, model="one"), random_features(20, model="other")
    with pytest.raises(doap.DoapError, match="one and other cannot be matched"):
        doap.match(first, other)
    shorter = doap.Features(first.frames, first.descriptors[:, :64], first.size, "one")
    with pytest.raises(doap.DoapError, match="features of one differ: 128 values of float32 and 64 of float32"):
        doap.match(first, shorter)
    with pytest.raises(doap.DoapError, match="features of one differ"):
        doap.match(first, random_features(20, "binary", model="one"))
    unknown = doap.Features(first.frames, np.full_like(first.descriptors, np.nan), first.size, "one")
    with pytest.raises(doap.DoapError, match=r"features of one cannot be matched: .*NaN"):
        doap.match(first, unknown)


def test_a_device_that_is_not_here_is_named() -> None:
    with pytest.raises(doap.DoapError, match="device abacus: not available here"):
        doap.match(random_features(3), random_features(3), device="abacus")


@pytest.mark.parametrize(
    "options",
    [{"ratio": 0}, {"ratio": -1}, {"ratio": 1.5}, {"ratio": np.nan}, {"max_distance": -1}, {"max_distance": np.nan}],
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(doap.DoapError, match=r"must be above 0 and at most 1|must not be negative"):
        doap.match(random_features(3), random_features(3), **options)


@pytest.mark.parametrize("precision", ["float16", "uint8"])
def test_features_of_another_precision_match(tmp_path: Path, precision: StoredPrecision) -> None:
    first, second = random_features(300), random_features(300)
    second.save(tmp_path / "second.npz", precision)
    matches = doap.match(first, doap.Features.load(tmp_path / "second.npz"), geometry="homography")
    np.testing.assert_array_equal(matches.indices[:, 0], matches.indices[:, 1])
    assert len(matches) == 300
    assert matches.inliers.all()


def test_an_image_matches_itself(photo: Grey) -> None:
    features = doap.detect_and_describe(photo, untrained(), max_keypoints=300)
    matches = doap.match(features, features, geometry="homography")
    assert (matches.indices[:, 0] == matches.indices[:, 1]).all()
    assert matches.inliers.all()
    assert matches.matrix is not None
    np.testing.assert_allclose(matches.matrix / matches.matrix[2, 2], np.eye(3), atol=1e-2)


@pytest.mark.parametrize("model", ["doap-demo-128", "doap-demo-256b"])
@pytest.mark.parametrize(("sequence", "number"), [("graf", 2), ("boat", 2), ("bikes", 4), ("leuven", 6)])
def test_real_photographs_are_matched(oxford: Path, model: str, sequence: str, number: int) -> None:
    folder = oxford / sequence
    storage = cv2.FileStorage(str(folder / f"H1to{number}p.xml"), cv2.FILE_STORAGE_READ)
    homography = np.asarray(storage.getFirstTopLevelNode().mat(), np.float64)
    descriptor = doap.load(model)
    a, b = doap.detect_and_describe([folder / f"img{k}.png" for k in (1, number)], descriptor)
    matches = doap.match(a, b, geometry="homography", threshold=3)
    first, second = matches.verified_points(a, b)
    assert len(first) >= 100
    errors = np.hypot(*(transform_points(first, homography) - second).T)
    assert np.mean(errors < 5) > 0.9
