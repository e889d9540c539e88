"""Structure from motion on a synthetic scene with known correspondences."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from doap.images.extraction import extract_patches
from doap.images.reading import read_grey
from doap.images.reconstruction.colmap import has_colmap, reconstruct_tracks
from doap.images.reconstruction.photo_features import PhotoFeatures, PhotoRecord
from doap.images.reconstruction.scene_frames import find_tracked_frames
from doap.images.reconstruction.tracks import PhotoPair, match_photos

pytestmark = pytest.mark.skipif(not has_colmap(), reason="needs pycolmap: pip install 'doap[colmap]'")

SIZE = (480, 640)
FOCAL = 800.0


def match_all(features: list[PhotoFeatures]) -> list[PhotoPair]:
    return match_photos(features, combinations(range(len(features)), 2))


def scene(cameras: int, apart: float, points: int = 400) -> tuple[list[PhotoFeatures], list[np.ndarray], np.ndarray]:
    """Simulate cameras on an arc around a cloud of points; each sees all points, in its own order, and some clutter.

    Returns features, the point of each feature (-1 for clutter), and the cameras' centres.
    """
    random = np.random.default_rng(0)
    cloud = random.uniform(-1, 1, (points, 3))
    appearance = random.normal(size=(points, 128))
    features, labels, centres = [], [], []
    for number in range(cameras):
        angle = np.radians(apart * (number - cameras / 2))
        turn = np.array([[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]])
        seen = cloud @ turn.T + [0, 0, 6]
        centres.append(-turn.T @ [0, 0, 6])
        pixels = seen[:, :2] / seen[:, 2:] * FOCAL + [SIZE[1] / 2 - 0.5, SIZE[0] / 2 - 0.5]
        pixels = np.concatenate([pixels + random.normal(0, 0.3, pixels.shape), random.uniform(0, 480, (50, 2))])
        vectors = np.concatenate([appearance, random.normal(size=(50, 128))])
        vectors = np.maximum(vectors + random.normal(0, 0.2, vectors.shape), 0)
        order = random.permutation(len(pixels))
        frames = np.zeros((len(order), 2, 3), np.float32)
        frames[:, [0, 1], [0, 1]] = 3
        frames[:, :, 2] = pixels[order]
        unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)[order]
        features.append(PhotoFeatures(frames, unit, SIZE))
        labels.append(np.where(order < points, order, -1))
    return features, labels, np.array(centres)


def test_tracks_are_the_points_of_the_scene() -> None:
    features, labels, centres = scene(cameras=6, apart=7)
    pairs = match_all(features)
    assert len(pairs) == 15
    assert not any(pair.is_planar for pair in pairs)
    tracks = reconstruct_tracks(features, pairs, seed=0)
    assert tracks is not None
    assert tracks.method == "structure"
    assert len(tracks.angles) > 300
    expected = np.array([labels[p][f] for p, f in zip(tracks.photos, tracks.features, strict=True)])
    assert (expected >= 0).mean() > 0.995
    for point in range(len(tracks.angles)):
        mask = tracks.points == point
        assert mask.sum() >= 3
        assert len(np.unique(expected[mask])) == 1
    # The widest angle of a point is about that between the outermost cameras that see it.
    directions = centres / np.linalg.norm(centres, axis=1, keepdims=True)
    widest = np.degrees(np.arccos(directions[0] @ directions[-1]))
    assert np.median(tracks.angles) == pytest.approx(widest, rel=0.15)
    assert tracks.close_points.shape[1] == 2
    assert (tracks.close_points[:, 0] < tracks.close_points[:, 1]).all()


def test_a_seed_determines_the_reconstruction() -> None:
    features, _, _ = scene(cameras=4, apart=8, points=200)
    pairs = match_all(features)
    first, second = (reconstruct_tracks(features, pairs, seed=3) for _ in range(2))
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first.features, second.features)
    np.testing.assert_array_equal(first.angles, second.angles)


def test_too_little_motion_gives_nothing() -> None:
    features, _, _ = scene(cameras=4, apart=0.1, points=200)
    assert reconstruct_tracks(features, match_all(features), seed=0) is None


def test_two_photos_are_not_enough() -> None:
    features, _, _ = scene(cameras=2, apart=20, points=200)
    assert reconstruct_tracks(features, match_all(features), seed=0) is None


def test_a_real_building_is_reconstructed(south_building: Path) -> None:
    images = [read_grey(path) for path in sorted(south_building.iterdir())[10:17]]
    features = [PhotoRecord.of_image(image).features() for image in images]
    actual = find_tracked_frames(features, match_all(features), seed=0)
    assert actual is not None
    assert "by structure" in actual.note
    assert len(np.unique(actual.photos)) >= 5
    assert len(actual.angles) > 120
    # Independent of the reconstruction: patches of one group must correlate more than those of different groups.
    patches = np.empty((len(actual.frames), 32 * 32))
    for number, image in enumerate(images):
        mask = actual.photos == number
        patches[mask] = extract_patches(image, actual.frames[mask], 32, 6.0).reshape(mask.sum(), -1)
    patches -= patches.mean(1, keepdims=True)
    patches /= np.maximum(np.linalg.norm(patches, axis=1, keepdims=True), 1)
    same = actual.groups[:, None] == actual.groups
    np.fill_diagonal(same, False)
    correlation = patches @ patches.T
    assert np.median(correlation[same]) > 0.7
    assert np.mean(correlation[same] > 0.3) > 0.95
    assert np.median(np.abs(correlation[~same])) < 0.3
