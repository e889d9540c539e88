"""Results are those of another machine, to the tolerance of each."""

import json

import numpy as np
import pytest

from campaign.reference import FILE, difference, measure, tolerance


@pytest.fixture(scope="module")
def expected() -> dict[str, list[float]]:
    results: dict[str, list[float]] = json.loads(FILE.read_text())["results"]
    return results


def test_results_are_those_of_another_machine(expected: dict[str, list[float]]) -> None:
    actual = measure()
    assert list(actual) == list(expected)
    differences = {name: difference(name, actual[name], np.asarray(expected[name])) for name in actual}
    assert {name: value for name, value in differences.items() if not value <= tolerance(name)} == {}


def test_other_results_are_noticed(expected: dict[str, list[float]]) -> None:
    for name, values in expected.items():
        array = np.asarray(values, np.float64)
        changed = 1 - array if name.startswith("bits") else array * 1.1 + 0.1
        assert difference(name, changed, array) > tolerance(name), name
        assert difference(name, array[..., :-1] if array.ndim else array[None], array) == float("inf")
