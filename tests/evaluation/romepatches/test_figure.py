from pathlib import Path

import pytest

from doap.evaluation.harness.result import Result
from doap.evaluation.romepatches.figure import draw_romepatches
from doap.evaluation.romepatches.tables import romepatches_table
from support.figures import record_figures

RESULT = Result(
    benchmark="romepatches",
    settings={},
    methods=[
        {"name": "good", "kind": "real", "dimensions": 8},
        {"name": "bits", "kind": "binary", "dimensions": 16},
    ],
    scores=[
        {"descriptor": "good", "half": "train", "map": 70.0, "map official queries": 71.04},
        {"descriptor": "good", "half": "test", "map": 50.0, "map official queries": None},
        {"descriptor": "bits", "half": "train", "map": 90.0, "map official queries": None},
        {"descriptor": "bits", "half": "test", "map": 30.0, "map official queries": None},
    ],
)


def test_the_best_on_the_test_half_is_on_top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = record_figures(monkeypatch)
    draw_romepatches(RESULT, tmp_path / "bars.png")
    (axes,) = written[0].axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["bits", "good"]  # from below
    train, test = axes.containers
    assert [bar.get_width() for bar in train] == [90, 70]
    assert [bar.get_width() for bar in test] == [30, 50]
    assert [bar.get_y() for bar in train] > [bar.get_y() for bar in test]


def test_the_table_has_the_halves_side_by_side_and_quotes() -> None:
    table = romepatches_table(RESULT)
    assert table.columns == ("method", "size", "train", "test")
    assert [row.cells for row in table.rows[:3]] == [
        ("good", "8", "70.0 (71.0)", "50.0"),
        ("bits", "16b", "90.0", "30.0"),
        ("SIFT", "128", "91.6", "87.9"),
    ]
    assert [row.quoted for row in table.rows] == [False] * 2 + [True] * 6
