"""Pairs of pictures whose patches are ranked."""

import numpy as np
import pytest

from doap.app.rank import pairs
from doap.app.rank.methods import cut_patches, rank_pair
from doap.errors import DoapError
from doap.types import Grey


def test_an_example_has_a_known_homography() -> None:
    pair = pairs.example_pair("coffee cup")
    assert pair.ground_truth is not None
    assert pair.correct is not None
    query = pair.first_query()
    partner = int(pair.correct[query].argmax())
    x, y, depth = pair.ground_truth.matrix @ [*pair.first.frames[query, :, 2].astype(float), 1.0]
    point = pair.expected_point(query)
    assert point is not None
    assert point == pytest.approx((x / depth, y / depth))
    assert np.hypot(*(pair.second.frames[partner, :, 2] - point)) <= 3


def test_the_nearest_frame_of_a_click() -> None:
    pair = pairs.example_pair("coffee cup")
    centres = pair.first.frames[:, :, 2]
    x, y = map(float, centres[123] + 0.01)
    clicked = pair.nearest_frame(x, y)
    assert np.hypot(*(centres[clicked] - (x, y))) == min(np.hypot(*(centre - (x, y))) for centre in centres)


@pytest.mark.parametrize("method", ["doap-tiny-128", "doap-tiny-256b", "rootsift", "sift", "orb"])
def test_the_list_of_a_query_holds_every_frame_once(method: str) -> None:
    pair = pairs.example_pair("coffee cup")
    ranked = rank_pair(pair, method, pair.first_query())
    assert sorted(ranked.items.tolist()) == list(range(len(pair.second.frames)))
    assert ranked.bits == (256 if method.endswith("b") else None)
    assert ranked.average_precision is not None
    assert 0 < ranked.average_precision <= 1
    assert cut_patches(pair.second.image, pair.second.frames[:3], method).shape == (3, 64, 64)


def test_unknown_methods_queries_and_examples_are_named() -> None:
    pair = pairs.example_pair("coffee cup")
    with pytest.raises(DoapError, match="<b>"):
        rank_pair(pair, "<b>", 0)
    with pytest.raises(DoapError, match="keypoint -1"):
        rank_pair(pair, "rootsift", -1)
    with pytest.raises(DoapError, match="no such example"):
        pairs.example_pair("none")


def test_the_homography_of_own_pictures_is_estimated() -> None:
    example = pairs.example_pair("coffee cup")
    pair = pairs.own_pair(example.first.image, example.second.image)
    assert example.ground_truth is not None
    assert pair.ground_truth is not None
    assert example.ground_truth.mean_error(pair.ground_truth.matrix) < 3
    assert "estimated" in pair.geometry


def test_unrelated_pictures_have_no_geometry() -> None:
    example = pairs.example_pair("coffee cup")
    noise: Grey = np.random.default_rng(0).integers(0, 256, (120, 160), np.uint8)
    pair = pairs.own_pair(example.first.image, noise)
    assert pair.ground_truth is None
    assert pair.correct is None
    assert pair.expected_point(0) is None
    assert rank_pair(pair, "rootsift", 0).average_precision is None


def test_a_flat_picture_is_refused() -> None:
    noise: Grey = np.random.default_rng(0).integers(0, 256, (120, 160), np.uint8)
    with pytest.raises(DoapError, match="second picture has no keypoint"):
        pairs.own_pair(noise, np.zeros((100, 100), np.uint8))
