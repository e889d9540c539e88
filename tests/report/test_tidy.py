"""Tidy rows as a table: every cell is the mean of its rows, and the note lists what was averaged over."""

from itertools import product

import numpy as np
import pytest

from doap.evaluation.harness.result import Result, Score
from doap.report.tidy import MAX_COLUMNS, tidy_table


def result(scores: list[Score]) -> Result:
    return Result(benchmark="any", settings={}, methods=[], scores=scores)


def test_conditions_become_columns() -> None:
    scores: list[Score] = [
        {"descriptor": name, "task": task, "level": level, "map": float(value)}
        for value, (name, task, level) in enumerate(product("AB", ("match", "find"), (1, 2)))
    ]
    table = tidy_table(result(scores))
    assert table.columns == ("descriptor", "match\n1\nmap", "match\n2\nmap", "find\n1\nmap", "find\n2\nmap")
    assert [row.cells for row in table.rows] == [
        ("A", "0.0", "1.0", "2.0", "3.0"),
        ("B", "4.0", "5.0", "6.0", "7.0"),
    ]
    assert table.note == ""


def test_a_condition_with_many_values_is_averaged_over() -> None:
    random = np.random.default_rng(0)
    scores: list[Score] = [
        {"descriptor": d, "sequence": s, "pair": p, "ap": float(random.random()), "correct": float(random.random())}
        for d, s, p in product(("A", "B"), ("graf", "boat", "wall"), range(2, 7))
    ]
    table = tidy_table(result(scores))
    assert table.columns == (
        "descriptor", "graf\nap", "graf\ncorrect", "boat\nap", "boat\ncorrect", "wall\nap", "wall\ncorrect",
    )  # fmt: skip
    assert table.note == "mean over pair (5)"
    own = [row["correct"] for row in scores if (row["descriptor"], row["sequence"]) == ("B", "boat")]
    expected = np.array(own, np.float64).mean()
    assert table.rows[1].cells[4] == f"{expected:.1f}"


@pytest.mark.parametrize("levels", [(3, 3, 3), (2, 30), (100,), (13, 13)])
def test_it_always_fits_the_page(levels: tuple[int, ...]) -> None:
    scores: list[Score] = [
        {"descriptor": "A", **{f"c{n}": f"v{v}" for n, v in enumerate(combination)}, "ap": 1.5}
        for combination in product(*map(range, levels))
    ]
    table = tidy_table(result(scores))
    assert len(table.columns) <= 1 + MAX_COLUMNS
    assert table.rows[0].cells[1:] == ("1.5",) * (len(table.columns) - 1)
    assert "mean over" in table.note


def test_pairs_are_averaged_over_however_few() -> None:
    scores: list[Score] = [{"descriptor": "A", "pair": f"long/path/{n}", "ap": float(n)} for n in (1, 2, 4)]
    table = tidy_table(result(scores))
    assert (table.columns, table.rows[0].cells) == (("descriptor", "ap"), ("A", "2.3"))
    assert table.note == "mean over pair (3)"


def test_on_ties_the_last_condition_is_averaged_over() -> None:
    scores: list[Score] = [
        {"descriptor": "A", "task": t, "noise": n, "rule": r, "ap": 1.0} for t, n, r in product("xyz", "eht", "of")
    ]
    assert tidy_table(result(scores)).note == "mean over noise (3)"


def test_what_was_not_measured_is_a_dash_and_never_a_zero() -> None:
    scores: list[Score] = [
        {"descriptor": "A", "task": "match", "ap": 10.0, "area": None},
        {"descriptor": "A", "task": "tell", "ap": None, "area": 90.0},
        {"descriptor": "B", "task": "match", "ap": 20.0, "area": None},
    ]
    table = tidy_table(result(scores))
    assert table.columns == ("descriptor", "match\nap", "tell\narea")
    assert [row.cells for row in table.rows] == [("A", "10.0", "90.0"), ("B", "20.0", "-")]


def test_text_among_the_measures_is_left_out() -> None:
    scores: list[Score] = [{"descriptor": "A", "ap": 10.0, "better than": "B", "inliers": 4}]
    table = tidy_table(result(scores))
    assert (table.columns, table.rows[0].cells) == (("descriptor", "ap", "inliers"), ("A", "10.0", "4.0"))
