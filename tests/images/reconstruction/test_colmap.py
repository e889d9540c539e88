"""Structure from motion on a made-up scene, where it is known which features show the same point."""

from pathlib import Path

import numpy as np
import pytest

from doap.images.extraction import extract_patches
from doap.images.reading import read_grey
from doap.images.reconstruction.colmap import has_colmap, structure_tracks
from doap.images.reconstruction.scene_frames import tracked_scene
from doap.images.reconstruction.tracks import PhotoFeatures, match_photos

pytestmark = pytest.mark.skipif(not has_colmap(), reason="needs pycolmap: pip install 'doap[colmap]'")

SIZE = (480, 640)
FOCAL = 800.0


def scene(cameras: int, apart: float, points: int = 400) -> tuple[list[PhotoFeatures], list[np.ndarray], np.ndarray]:
    """Cameras on an arc around a cloud of points; each sees all of them, in an order of its own, and some clutter.

    Returns features, which point each feature shows (-1 for clutter), and the cameras' centres.
    """
    random = np.random.default_rng(0)
    cloud = random.uniform(-1, 1, (points, 3))
    looks = random.normal(size=(points, 128))
    features, shown, centres = [], [], []
    for number in range(cameras):
        angle = np.radians(apart * (number - cameras / 2))
        turn = np.array([[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]])
        seen = cloud @ turn.T + [0, 0, 6]
        centres.append(-turn.T @ [0, 0, 6])
        pixels = seen[:, :2] / seen[:, 2:] * FOCAL + [SIZE[1] / 2 - 0.5, SIZE[0] / 2 - 0.5]
        pixels = np.concatenate([pixels + random.normal(0, 0.3, pixels.shape), random.uniform(0, 480, (50, 2))])
        vectors = np.concatenate([looks, random.normal(size=(50, 128))])
        vectors = np.maximum(vectors + random.normal(0, 0.2, vectors.shape), 0)
        order = random.permutation(len(pixels))
        frames = np.zeros((len(order), 2, 3), np.float32)
        frames[:, [0, 1], [0, 1]] = 3
        frames[:, :, 2] = pixels[order]
        unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)[order]
        features.append(PhotoFeatures(frames, unit, SIZE))
        shown.append(np.where(order < points, order, -1))
    return features, shown, np.array(centres)


def test_tracks_are_the_points_of_the_scene() -> None:
    features, shown, centres = scene(cameras=6, apart=7)
    pairs = match_photos(features)
    assert len(pairs) == 15
    assert not any(pair.flat for pair in pairs)
    tracks = structure_tracks(features, pairs, seed=0)
    assert tracks is not None
    assert tracks.method == "structure"
    assert len(tracks.angles) > 300
    truth = np.array([shown[p][f] for p, f in zip(tracks.photos, tracks.features, strict=True)])
    assert (truth >= 0).mean() > 0.995
    for point in range(len(tracks.angles)):
        here = tracks.points == point
        assert here.sum() >= 3
        assert len(np.unique(truth[here])) == 1
    # The widest angle of a point is about that between the outermost cameras that see it.
    directions = centres / np.linalg.norm(centres, axis=1, keepdims=True)
    widest = np.degrees(np.arccos(directions[0] @ directions[-1]))
    assert np.median(tracks.angles) == pytest.approx(widest, rel=0.15)
    assert tracks.near.shape[1] == 2
    assert (tracks.near[:, 0] < tracks.near[:, 1]).all()


def test_a_seed_fixes_the_reconstruction() -> None:
    features, _, _ = scene(cameras=4, apart=8, points=200)
    pairs = match_photos(features)
    first, second = (structure_tracks(features, pairs, seed=3) for _ in range(2))
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first.features, second.features)
    np.testing.assert_array_equal(first.angles, second.angles)


def test_too_little_motion_gives_nothing() -> None:
    features, _, _ = scene(cameras=4, apart=0.1, points=200)
    assert structure_tracks(features, match_photos(features), seed=0) is None


def test_two_photos_are_not_enough() -> None:
    features, _, _ = scene(cameras=2, apart=20, points=200)
    assert structure_tracks(features, match_photos(features), seed=0) is None


def test_a_real_building_is_reconstructed(south_building: Path) -> None:
    images = [read_grey(path) for path in sorted(south_building.iterdir())[10:17]]
    found = tracked_scene(images, seed=0)
    assert found is not None
    assert "by structure" in found.note
    assert len(np.unique(found.photos)) >= 5
    assert len(found.angles) > 120
    # What the reconstruction never saw: the pixels of a group must agree better than those of different groups.
    looks = np.empty((len(found.frames), 32 * 32))
    for number, image in enumerate(images):
        here = found.photos == number
        looks[here] = extract_patches(image, found.frames[here], 32, 6.0).reshape(here.sum(), -1)
    looks -= looks.mean(1, keepdims=True)
    looks /= np.maximum(np.linalg.norm(looks, axis=1, keepdims=True), 1)
    same = found.groups[:, None] == found.groups
    np.fill_diagonal(same, False)
    alike = looks @ looks.T
    assert np.median(alike[same]) > 0.7
    assert np.mean(alike[same] > 0.3) > 0.95
    assert np.median(np.abs(alike[~same])) < 0.3
