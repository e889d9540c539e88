"""Weak pairs: look-alike places are left out, and no image is lost."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial.transform import Rotation

from bridges.colmap.conftest import SETTINGS, write_photos
from bridges.colmap.test_database import rows
from bridges.colmap.test_project import dump
from doap.bridges.colmap import build_project, view_graph
from doap.bridges.colmap.database import open_database, pair_id
from doap.bridges.colmap.filling import hide_weak_pairs
from doap.bridges.colmap.two_view import RotationTask, rotation_task
from doap.bridges.colmap.view_graph import angle_between, low_shares, weak_pairs
from doap.errors import DoapError
from doap.geometry.robust import Matrix
from doap.parallel import open_engine
from doap.types import no_progress

Counts = dict[tuple[int, int], int]
Rotations = dict[tuple[int, int], Matrix]


def random_counts(seed: int, images: int = 12) -> Counts:
    """Return numbers of matches of pairs, some of them 0."""
    random = np.random.default_rng(seed)
    return {pair: int(random.pareto(0.7) * 5) for pair in combinations(range(images), 2)}


def turn(degrees: float, axis: tuple[float, float, float] = (0, 1, 0)) -> Matrix:
    """Return a rotation, by scipy."""
    return np.asarray(Rotation.from_rotvec(np.radians(degrees) * np.array(axis)).as_matrix())


def relative(cameras: list[Matrix], pairs: Iterable[tuple[int, int]]) -> Rotations:
    """Return the rotations of pairs of cameras."""
    return {(a, b): cameras[b] @ cameras[a].T for a, b in pairs}


def ring(photos: int = 24, seed: int = 0) -> tuple[Counts, Rotations, set[tuple[int, int]]]:
    """Photos around a building: right pairs of neighbours, and wrong ones of opposite sides that look alike.

    Returns:
        Counts, rotations with an error of some degrees each, and the wrong pairs.
    """
    random = np.random.default_rng(seed)
    cameras = [turn(360 / photos * number) for number in range(photos)]
    counts: Counts = {}
    rotations: Rotations = {}
    wrong = set()
    for first, second in combinations(range(photos), 2):
        steps = min(second - first, photos - second + first)
        if steps in (1, 2, 3):
            counts[first, second] = {1: 500, 2: 150, 3: 20}[steps] + int(random.integers(10))
        elif abs(steps - photos // 2) < 2:
            counts[first, second] = 15 + int(random.integers(10))
            wrong.add((first, second))
        else:
            continue
        right = cameras[second] @ cameras[first].T
        seen = turn(180) @ right if (first, second) in wrong else right  # as if it were the same side
        rotations[first, second] = turn(random.normal(0, 3), tuple(random.normal(size=3) / 2)) @ seen
    return counts, rotations, wrong


@pytest.mark.parametrize("seed", range(5))
def test_photos_around_a_building(seed: int) -> None:
    counts, rotations, wrong = ring(seed=seed)
    assert len(wrong) > 30
    assert low_shares(counts, 0.1) == {pair for pair, count in counts.items() if count < 40}  # right ones, too
    assert weak_pairs(counts, rotations, 0.1) == wrong


def test_a_wrong_pair_with_many_matches_confirms_no_other() -> None:
    counts, rotations, wrong = ring()
    counts[3, 15] = 60  # of about 500: above the share
    weak = weak_pairs(counts, rotations, 0.1)
    assert weak == wrong - {(3, 15)}


def test_without_rotations_the_share_decides() -> None:
    """Photos 0 to 2 of the front and 3 to 5 of the back, with a corner photo 6 of both."""
    counts = dict.fromkeys(combinations(range(7), 2), 20)
    counts |= {(0, 1): 500, (1, 2): 400, (0, 2): 100, (3, 4): 300, (4, 5): 450, (3, 5): 200, (2, 6): 90, (3, 6): 80}
    strong = {(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 6), (3, 6)}
    kept = counts.keys() - weak_pairs(counts, {}, 0.1)
    assert kept == strong | {(image, 6) for image in (0, 1, 4, 5)}  # 20 of 90 is not little for photo 6
    assert counts.keys() - weak_pairs(counts, {}, 0.25) == strong


@pytest.mark.parametrize(("degrees", "is_weak"), [(0, False), (19, False), (21, True), (180, True)])
def test_tolerance_of_a_path_of_two_pairs(degrees: float, is_weak: bool) -> None:
    rotations = relative([np.eye(3), turn(15), turn(30)], [(0, 1), (1, 2), (0, 2)])
    rotations[0, 2] = turn(degrees, (0, 0, 1)) @ rotations[0, 2]
    counts = {(0, 1): 500, (1, 2): 400, (0, 2): 20}
    assert weak_pairs(counts, rotations, 0.1) == ({(0, 2)} if is_weak else set())
    assert not weak_pairs(counts, rotations, 0.01)


def test_tolerance_of_long_paths() -> None:
    """A ring whose closing pair is 90 degrees off: as a pair of a low share it is not confirmed, else it is kept."""
    pairs = [(image, image + 1) for image in range(11)]
    counts = dict.fromkeys(pairs, 100) | {(0, 11): 5, (0, 10): 4}
    cameras = [turn(30 * image) for image in range(12)]
    rotations = relative(cameras, pairs)
    rotations[0, 11] = turn(90 + 330)
    rotations[0, 10] = turn(90 + 300)
    assert weak_pairs(counts, rotations, 0.1) == {(0, 11), (0, 10)}
    counts[0, 11] = 50  # trusted over a path of 11 pairs, and then confirms the other
    assert weak_pairs(counts, rotations, 0.1) == set()


@pytest.mark.parametrize("degrees", [0.0, 1.0, 90.0, 179.0, 180.0])
def test_angle(degrees: float) -> None:
    first = turn(77, (0.6, 0, 0.8))
    assert np.isclose(angle_between(first, turn(degrees, (0, 0.6, 0.8)) @ first), degrees, atol=1e-5)


@pytest.mark.parametrize("seed", range(10))
def test_a_pair_is_weak_beside_the_best_pairs_of_both_images(seed: int) -> None:
    counts = random_counts(seed)
    weak = weak_pairs(counts, {}, 0.2)
    for pair in weak:
        for image in pair:
            assert counts[pair] < 0.2 * max(count for other, count in counts.items() if image in other)
    weights = coo_matrix((-np.array(list(counts.values()), float), np.array(list(counts)).T), (12, 12))
    tree = minimum_spanning_tree(weights)  # scipy's, of the negative numbers
    assert sum(counts[pair] for pair in counts.keys() - weak) >= -tree.sum()


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("known", [0.0, 0.5, 1.0])
def test_images_stay_connected(seed: int, known: float) -> None:
    counts = random_counts(seed)
    random = np.random.default_rng(seed)
    rotations = {pair: Rotation.random(random_state=random).as_matrix() for pair in counts if random.random() < known}
    kept = [pair for pair in counts.keys() - weak_pairs(counts, rotations, 1.0) if counts[pair]]
    every = [pair for pair in counts if counts[pair]]
    before, after = (
        connected_components(coo_matrix((np.ones(len(pairs)), np.array(pairs).T), (12, 12)))[0]
        for pairs in (every, kept)
    )
    assert before == after


def test_no_pair_is_weak_without_a_share() -> None:
    assert not weak_pairs(random_counts(0), {}, 0)
    assert not weak_pairs({}, {}, 0.5)
    with pytest.raises(DoapError, match="between 0 and 1, not 2"):
        replace(SETTINGS, min_share=2)


def test_rotation_of_matched_points() -> None:
    """The rotation of two cameras comes out of points they see, also with an assumed focal length that is wrong."""
    random = np.random.default_rng(0)
    points = random.uniform((-2, -2, 4), (2, 2, 8), (200, 3))
    rotation, camera = turn(20), np.array([[800.0, 0, 400], [0, 800, 300], [0, 0, 1]])

    def project(points: Matrix) -> Matrix:
        rays = points @ camera.T
        return np.asarray(rays[:, :2] / rays[:, 2:])

    first, second = project(points), project(points @ rotation.T + (-2.0, 0.1, 0.3))
    for factor in (1.0, 1.2):
        assumed = np.diag([factor, factor, 1]) @ camera
        assumed[:2, 2] = camera[:2, 2]
        actual = rotation_task(RotationTask(first, second, (600, 800), (assumed, assumed)))
        assert actual is not None
        assert angle_between(actual, rotation) < (0.5 if factor == 1 else 6)
    assert rotation_task(None) is None


@pytest.fixture
def unconfirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rotation confirms a pair with few matches."""
    monkeypatch.setattr(view_graph, "MAX_ANGLE", -1.0)


@pytest.mark.usefixtures("in_process")
def test_confirmed_pairs_are_kept(project: Path, tmp_path: Path) -> None:
    summary = build_project(write_photos(tmp_path / "photos"), tmp_path, replace(SETTINGS, min_share=1.0))
    assert summary.weak == 0
    geometries = rows(project / "database.db", "two_view_geometries", "*")
    assert rows(tmp_path / "database.db", "two_view_geometries", "*") == geometries


@pytest.mark.usefixtures("in_process", "unconfirmed")
def test_matches_of_weak_pairs_are_not_verified(project: Path, tmp_path: Path) -> None:
    before = rows(project / "database.db", "two_view_geometries", "pair_id, rows")
    counts = {pair: count for pair, count in before if count}
    weakest = min(counts, key=lambda pair: counts[pair])
    assert len(counts) == 3  # of the three photos: one is not in the spanning tree
    settings = replace(SETTINGS, min_share=1.0)
    summary = build_project(write_photos(tmp_path / "photos"), tmp_path, settings)
    assert summary.weak == 1
    assert sorted(count for count in summary.verified if count) == sorted(counts.values())[1:]
    after = dict(rows(tmp_path / "database.db", "two_view_geometries", "pair_id, rows"))
    assert after[weakest] == 0
    assert rows(tmp_path / "database.db", "matches", "*") == rows(project / "database.db", "matches", "*")
    content = dump(tmp_path / "database.db")
    assert build_project(tmp_path / "photos", tmp_path, settings).weak == 1
    assert dump(tmp_path / "database.db") == content
    assert pair_id(1, 3) in after  # the photo without keypoints


@pytest.mark.usefixtures("in_process", "unconfirmed")
def test_hidden_geometries_come_back(project: Path, tmp_path: Path) -> None:
    """What is hidden depends on the pairs of the present call alone, not on what an earlier call has hidden."""
    copy = tmp_path / "database.db"
    copy.write_bytes((project / "database.db").read_bytes())
    with open_database(copy) as database, database.transaction():
        database.hide_geometries([])  # makes its table
    before = dump(copy)
    with open_database(copy) as database, open_engine("local", 1) as pool:
        images = database.images()
        assert hide_weak_pairs(database, images, 1.0, pool, no_progress) == 1
        hidden = dump(copy)
        assert hidden != before
        assert hide_weak_pairs(database, images, 1.0, pool, no_progress) == 1
        assert dump(copy) == hidden
        assert hide_weak_pairs(database, images, 0.0, pool, no_progress) == 0
        assert dump(copy) == before
        hide_weak_pairs(database, images, 1.0, pool, no_progress)
        with database.transaction():
            database.remove_features([image.number for image in images.values()])
            database.restore_geometries()
        assert not database.verified_counts()
