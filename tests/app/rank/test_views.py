"""What the Rank tab shows of one query."""

import re

import numpy as np
import pytest

from doap.app.rank import pairs
from doap.app.rank.curves import Line, render_plot, whole_ticks
from doap.app.rank.drawing import SCALE, to_image_point
from doap.app.rank.list_html import SHOWN, format_rank, list_facts, render_list, shown_positions
from doap.app.rank.methods import rank_pair
from doap.app.rank.ranking import RankedList
from doap.app.rank.store import EXAMPLE, PairStore
from doap.app.rank.views import hardest_query, random_query, view_query
from doap.errors import DoapError

METHOD = "doap-tiny-256b"


def test_a_view_shows_both_pictures_twelve_patches_and_the_curve() -> None:
    pair = pairs.example_pair("coffee cup")
    view = view_query(pair, METHOD, pair.first_query())
    for picture, side in ((view.first, pair.first), (view.second, pair.second)):
        assert picture.shape == (*(SCALE * np.array(side.image.shape)), 3)
    assert view.html.count("<li") == 12
    assert "polyline" in view.curve


def test_the_hardest_query_has_the_lowest_ap_and_a_random_one_has_a_correct_patch() -> None:
    pair = pairs.example_pair("coffee cup")
    assert pair.correct is not None
    lowest = rank_pair(pair, METHOD, hardest_query(pair, METHOD)).average_precision
    others = [rank_pair(pair, METHOD, int(q)).average_precision for q in np.flatnonzero(pair.correct.any(1))]
    assert lowest == min(value for value in others if value is not None)
    random = np.random.default_rng(0)
    assert all(pair.correct[random_query(pair, random)].any() for _ in range(20))


def test_a_pixel_of_the_picture_is_a_point_of_the_image() -> None:
    assert to_image_point(0.5, 1.5) == (0.0, 0.5)


def test_texts_are_escaped() -> None:
    ranked = RankedList(np.array([1.0]), np.array([0]), None, None)
    patch = np.zeros((4, 4), np.uint8)
    html = render_list(ranked, [0], patch, patch[None], [("<b>", "<i>", "")], ["<script>"])
    assert not re.search("<(b|i|script)>", html)
    assert "<script>" not in render_plot("<script>", [], "<script>", (0, 1))


def test_ties_are_shown_as_ranges() -> None:
    ranked = RankedList(np.array([1.0, 2.0, 2.0, 3.0]), np.arange(4), np.array([False, True, False, False]), 8)
    assert [format_rank(ranked, position) for position in range(4)] == ["1", "2-3", "2-3", "4"]
    assert list_facts(ranked)[0] == ("Rank of the correct patch", "2 to 3", "tied with wrong ones")
    assert float(list_facts(ranked)[1][1]) == pytest.approx((1 / 2 + 1 / 3) / 2, abs=1e-3)


@pytest.mark.parametrize(("correct", "expected"), [([3, 30], SHOWN), ([17, 30], SHOWN + 1), ([], SHOWN)])
def test_the_first_correct_patch_is_always_shown(correct: list[int], expected: int) -> None:
    ranked = RankedList(np.arange(40.0), np.arange(40), np.isin(np.arange(40), correct), None)
    positions = shown_positions(ranked)
    assert positions[:SHOWN] == list(range(SHOWN))
    assert positions[SHOWN:] == ([17] if expected > SHOWN else [])
    assert shown_positions(RankedList(ranked.distances, ranked.items, None, None)) == list(range(SHOWN))


def test_points_of_a_plot_are_percentages_of_its_area() -> None:
    html = render_plot("title", [Line("a", [(1, 1.0), (3, 0.5), (5, 0.0)])], "x", (1, 5))
    assert "0.0,0.0 50.0,50.0 100.0,100.0" in html


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 9), (1, 20), (1, 500), (0, 12345)])
def test_ticks_are_few_and_evenly_spaced(low: int, high: int) -> None:
    ticks = whole_ticks(low, high)
    assert 1 <= len(ticks) <= 10
    assert len(set(np.diff(ticks).tolist())) <= 1
    assert all(low <= tick <= high for tick in ticks)


def test_the_store_keeps_a_bounded_number_of_pairs_and_the_examples() -> None:
    store = PairStore(2)
    pair = pairs.example_pair("coffee cup")
    first, second = store.add(pair), store.add(pair)
    assert store.get(first) is pair
    third = store.add(pair)  # the second is the least recently used
    with pytest.raises(DoapError, match="no longer in memory"):
        store.get(second)
    store.remove(third)
    store.remove("unknown")
    assert len(store) == 1
    assert store.get(EXAMPLE + "coffee cup") is pair
    with pytest.raises(DoapError, match="no longer in memory"):
        store.get(EXAMPLE + "none")
