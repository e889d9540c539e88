"""The graph of matched keypoints, and its corrections."""

import numpy as np
import pytest

from doap.bridges.colmap.refinement import keypoint_graph
from doap.bridges.colmap.refinement.keypoint_graph import DAMPING, MatchGraph, solve_corrections
from doap.errors import DoapError


def test_corrections_minimise_the_sum() -> None:
    """Against the normal equations, solved densely."""
    random = np.random.default_rng(0)
    count, edges = 40, random.integers(0, 40, (90, 2))
    edges = edges[edges[:, 0] != edges[:, 1]]
    shifts, weights = random.normal(size=(len(edges), 2)), random.uniform(0, 1, len(edges))
    weights[:10] = 0
    incidence = np.zeros((len(edges), count))
    incidence[np.arange(len(edges)), edges[:, 0]] = -1
    incidence[np.arange(len(edges)), edges[:, 1]] = 1
    normal = incidence.T @ (weights[:, None] * incidence) + DAMPING * np.eye(count)
    expected = np.linalg.solve(normal, incidence.T @ (weights[:, None] * shifts))
    np.testing.assert_allclose(solve_corrections(count, edges, shifts, weights), expected, atol=1e-4)


def test_consistent_shifts_are_explained() -> None:
    """Displaced keypoints of a long track return to where they agree, around their mean."""
    random = np.random.default_rng(0)
    wrong = random.normal(size=(30, 2))
    edges = np.array([(i, j) for i in range(30) for j in range(i)])
    shifts = wrong[edges[:, 0]] - wrong[edges[:, 1]]  # where the point is, relative to each keypoint
    corrected = wrong + solve_corrections(30, edges, shifts, np.ones(len(edges)))
    assert np.abs(corrected - corrected.mean(0)).max() < 0.02
    np.testing.assert_allclose(corrected.mean(0), wrong.mean(0), atol=1e-6)


def test_nothing_to_correct() -> None:
    edges = np.array([[0, 1]])
    assert not solve_corrections(3, edges, np.ones((1, 2)), np.zeros(1)).any()
    assert solve_corrections(0, edges[:0], np.empty((0, 2)), np.empty(0)).shape == (0, 2)
    one_axis = solve_corrections(2, edges, np.array([[1.0, 0.0]]), np.ones(1))
    assert one_axis[1, 0] == pytest.approx(1 / (2 + DAMPING))
    assert not one_axis[:, 1].any()


def test_a_system_that_does_not_converge_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keypoint_graph, "MAX_STEPS", 1)
    edges = np.array([(i, i + 1) for i in range(20)])
    with pytest.raises(DoapError, match="--no-refine"):
        solve_corrections(21, edges, np.random.default_rng(0).normal(size=(20, 2)), np.ones(20))


def test_keypoints_with_matches_are_nodes() -> None:
    graph = MatchGraph.of_matches(
        [
            (("b", "a"), np.array([[7, 3], [2, 5]])),
            (("a", "c"), np.empty((0, 2), np.int64)),
            (("b", "c"), np.array([[7, 0]])),
        ]
    )
    assert graph.pairs == [("b", "a"), ("b", "c")]
    assert {name: keypoints.tolist() for name, keypoints in graph.keypoints.items()} == {
        "a": [3, 5],
        "b": [2, 7],
        "c": [0],
    }
    assert len(graph) == 5
    assert [rows.tolist() for rows in graph.rows] == [[[1, 0], [0, 1]], [[1, 0]]]
    assert graph.edges.tolist() == [[3, 0], [2, 1], [3, 4]]
    assert [part.tolist() for part in graph.by_pair(np.arange(3))] == [[0, 1], [2]]
    assert {name: part.tolist() for name, part in graph.by_image(np.arange(5)).items()} == {
        "a": [0, 1],
        "b": [2, 3],
        "c": [4],
    }


def test_a_graph_without_matches() -> None:
    graph = MatchGraph.of_matches([(("a", "b"), np.empty((0, 2), np.int64))])
    assert len(graph) == 0
    assert graph.edges.shape == (0, 2)
    assert not graph.by_pair(np.empty(0))
    assert not graph.by_image(np.empty(0))
