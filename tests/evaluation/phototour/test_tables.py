"""Table 1: which models are one method, where a figure stands, and when there is a mean."""

from typing import Any

import pytest

from doap.evaluation.harness.result import Result
from doap.evaluation.phototour.tables import COMBINATIONS, measured_rows, phototour_table

SCENES = ("liberty", "notredame", "yosemite")


def model(name: str, scene: str = "", kind: str = "real", dimensions: int = 128) -> dict[str, Any]:
    return {"name": name, "kind": kind, "dimensions": dimensions, "trained on": scene}


def result(*models: dict[str, Any], tests: tuple[str, ...] = SCENES) -> Result:
    """Return the scores of every model on every scene it was not trained on; FPR95 is 10 * model + scene."""
    scores = [
        {"descriptor": m["name"], "trained on": m["trained on"], "test": test, "fpr95": 10.0 * n + SCENES.index(test)}
        for n, m in enumerate(models)
        for test in tests
        if test != m["trained on"]
    ]
    return Result(benchmark="phototour", settings={}, methods=list(models), scores=scores)


def test_three_trainings_are_one_row_with_its_mean() -> None:
    rows = measured_rows(result(*(model(f"doap-{scene}", scene) for scene in SCENES)))
    # liberty is model 0, notredame 1, yosemite 2; the paper's columns are train, test:
    assert [row.cells for row in rows] == [
        ("doap", "128", "10.00", "20.00", "1.00", "21.00", "2.00", "12.00", f"{66 / 6:.2f}")
    ]


def test_prefixes_of_three_trainings_are_one_row_beside_that_of_the_whole() -> None:
    prefixes = [model(f"doap-{scene}@64", scene, dimensions=64) for scene in SCENES]
    rows = measured_rows(result(*prefixes, *(model(f"doap-{scene}", scene) for scene in SCENES)))
    assert [row.cells[:2] for row in rows] == [("doap@64", "64"), ("doap", "128")]
    assert rows[0].cells[2:] == ("10.00", "20.00", "1.00", "21.00", "2.00", "12.00", f"{66 / 6:.2f}")


@pytest.mark.parametrize("order", [1, -1])
def test_a_model_called_as_a_method_is_a_row_of_its_own(order: int) -> None:
    models = [model("doap-liberty", "liberty"), model("doap")][::order]
    names = {row.cells[0]: row.cells for row in measured_rows(result(*models))}
    assert set(names) == {"doap-liberty", "doap"}
    column = {(train, test): 2 + n for n, (train, test) in enumerate(COMBINATIONS)}
    notredame = column["liberty", "notredame"]
    assert names["doap-liberty"][notredame] == f"{10 * (order < 0) + 1:.2f}"
    assert names["doap"][notredame] == f"{10 * (order > 0) + 1:.2f}"
    assert names["doap-liberty"][column["yosemite", "notredame"]] == "-"


def test_what_was_trained_elsewhere_has_one_figure_per_test() -> None:
    (row,) = measured_rows(result(model("sift")))
    assert row.cells == ("sift", "128", "0.00", "0.00", "1.00", "1.00", "2.00", "2.00", "1.00")
    (row,) = measured_rows(result(model("sift"), tests=("notredame",)))
    assert row.cells == ("sift", "128", "-", "-", "1.00", "1.00", "-", "-", "-")


def test_a_missing_training_is_a_dash_and_leaves_no_mean() -> None:
    (row,) = measured_rows(result(model("a-liberty", "liberty"), model("a-yosemite", "yosemite")))
    assert row.cells == ("a", "128", "-", "10.00", "1.00", "11.00", "2.00", "-", "-")


@pytest.mark.parametrize(
    ("second", "methods"),
    [
        (model("a-notredame", "notredame"), ["a"]),
        (model("a_notredame", "notredame"), ["a"]),
        (model("b-notredame", "notredame"), ["a", "b"]),
        (model("a-notredame", "notredame", dimensions=64), ["a", "a-notredame"]),
        (model("a-notredame", "notredame", "binary"), ["a", "a-notredame"]),
        (model("a_liberty", "liberty"), ["a", "a_liberty"]),
        (model("notredame", "notredame"), ["a", "notredame"]),
        (model("notredame@64", "notredame", dimensions=64), ["a", "notredame@64"]),
        (model("a-notredame@64", "notredame", dimensions=64), ["a", "a@64"]),
        (model("a-notredame", "yosemite"), ["a", "a-notredame"]),  # the card says otherwise
    ],
)
def test_models_that_differ_in_more_than_the_scene_are_rows_of_their_own(
    second: dict[str, Any], methods: list[str]
) -> None:
    rows = measured_rows(result(model("a-liberty", "liberty"), second))
    assert [row.cells[0] for row in rows] == methods


def test_real_come_before_binary_and_quoted_after_all() -> None:
    table = phototour_table(result(model("bits", kind="binary", dimensions=256), model("vectors")))
    assert [row.cells[0] for row in table.rows[:3]] == ["vectors", "bits", "SIFT"]
    assert [row.quoted for row in table.rows] == [False] * 2 + [True] * 18
    assert table.rows[1].cells[1] == "256b"
    assert all(len(row.cells) == len(table.columns) == len(COMBINATIONS) + 3 for row in table.rows)
    doap = next(row for row in table.rows if row.cells[:2] == ("DOAP-ST+", "128"))
    assert doap.cells[2:] == ("1.47", "2.29", "0.39", "0.78", "1.98", "1.35", "1.38")
    assert phototour_table(None).rows == table.rows[2:]


def other_result(*models: dict[str, Any], tests: tuple[str, ...]) -> Result:
    scores = [
        {"descriptor": m["name"], "trained on": m["trained on"], "test": test, "fpr95": 10.0 * n + k}
        for n, m in enumerate(models)
        for k, test in enumerate(tests)
        if test not in m["trained on"].split(" + ")
    ]
    return Result(benchmark="phototour", settings={}, methods=list(models), scores=scores)


def test_other_scenes_have_columns_of_their_own_and_no_quoted_rows() -> None:
    scenes = ("a", "b", "c")
    table = phototour_table(other_result(*(model(f"doap-{scene}", scene) for scene in scenes), tests=scenes))
    columns = [column.replace(" →\n", "/") for column in table.columns[2:-1]]
    assert columns == ["b/a", "c/a", "a/b", "c/b", "a/c", "b/c"]
    assert [row.cells for row in table.rows] == [
        ("doap", "128", "10.00", "20.00", "1.00", "21.00", "2.00", "12.00", f"{66 / 6:.2f}")
    ]
    assert not table.sources


def test_a_model_of_two_scenes_fills_both_columns_of_the_third() -> None:
    (row,) = measured_rows(other_result(model("both", "liberty + notredame"), tests=SCENES))
    assert row.cells == ("both", "128", "-", "-", "-", "-", "2.00", "2.00", "-")


def test_a_single_other_scene_is_one_column() -> None:
    table = phototour_table(other_result(model("sift"), tests=("harbour",)))
    assert table.columns == ("method", "size", "harbour", "mean")
    assert [row.cells for row in table.rows] == [("sift", "128", "0.00", "0.00")]
    table = phototour_table(other_result(model("x-liberty", "liberty"), tests=("harbour",)))
    assert table.columns == ("method", "size", "liberty →\nharbour", "mean")
