from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from doap.experiments.sweep_figure import draw_rows, draw_sweep
from doap.experiments.sweep_metrics import METRICS
from support.figures import record_figures


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    return record_figures(monkeypatch)


def test_numbers_are_drawn_in_their_order_and_wide_ranges_by_logarithms(tmp_path: Path, figures: list[Figure]) -> None:
    curves = {"mean": [1.6, 2.4, 1.9], "notredame": [0.5, 1.0, 0.7]}
    draw_sweep([1024, 256, 512], curves, ("batch_size", "FPR95 %"), "title", tmp_path / "sweep.png")
    (axes,) = figures[0].axes
    mean, other = axes.lines
    assert np.asarray(mean.get_xydata()).tolist() == [[256, 2.4], [512, 1.9], [1024, 1.6]]
    assert np.asarray(other.get_xydata()).tolist() == [[256, 1.0], [512, 0.7], [1024, 0.5]]
    assert axes.get_xscale() == "log"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["256", "512", "1024"]
    assert [text.get_text() for text in axes.texts] == ["2.40", "1.90", "1.60"]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("batch_size", "FPR95 %", "title")
    assert (tmp_path / "sweep.png").exists()


@pytest.mark.parametrize(
    ("values", "positions", "ticks"),
    [
        (["steps", "linear"], [0, 1], ["steps", "linear"]),
        ([None, 4], [0, 1], ["null", "4"]),
        ([True, False], [0, 1], ["true", "false"]),
        ([[8, 16], None], [0, 1], ["[8, 16]", "null"]),
        ([0.1, 0.0], [0, 0.1], ["0.0", "0.1"]),
        ([7], [7], ["7"]),
    ],
)
def test_values_of_any_type_are_drawn(
    tmp_path: Path, figures: list[Figure], values: list[object], positions: list[float], ticks: list[str]
) -> None:
    draw_sweep(values, {"AP": [0.5 + n / 10 for n in range(len(values))]}, ("key", "AP"), "title", tmp_path / "s.png")
    (axes,) = figures[0].axes
    assert np.asarray(axes.lines[0].get_xdata()).tolist() == positions
    assert axes.get_xscale() == "linear"
    assert axes.lines[0].get_linestyle() == ("-" if all(type(value) in (int, float) for value in values) else "None")
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ticks
    assert axes.get_legend() is None


@pytest.mark.parametrize(
    ("metric", "rows", "curves", "label"),
    [
        (
            "fpr95",
            [
                {"lr": 1, "fpr95": 2.0, "fpr95 a": 1.0, "fpr95 b": 3.0},
                {"lr": 2, "fpr95": 1.5, "fpr95 a": 1, "fpr95 b": 2},
            ],
            {"mean": [2.0, 1.5], "a": [1, 1], "b": [3, 2]},
            "FPR95 % (less is better)",
        ),
        (
            "matching",
            [{"lr": 1, "matching": 40.0, "matching hpatches": 40.0}],
            {"mean": [40.0]},
            "HPatches matching mAP % on hpatches (more is better)",
        ),
        (
            "map",
            [{"lr": 1, "map": 70.0, "map rome": 70.0}],
            {"mean": [70.0]},
            "RomePatches mAP % on rome (more is better)",
        ),
        (
            "validation-ap",
            [{"lr": 1, "ap": 0.5, "epoch": 3}, {"lr": 2, "ap": 0.25, "epoch": 1}],
            {"AP on validation scenes %": [50, 25]},
            "AP on validation scenes % (more is better)",
        ),
    ],
)
def test_labels_and_units_follow_the_metric(
    tmp_path: Path,
    figures: list[Figure],
    metric: str,
    rows: list[dict[str, float]],
    curves: dict[str, list[float]],
    label: str,
) -> None:
    draw_rows("lr", rows, METRICS[metric], "title", tmp_path / "s.png")
    (axes,) = figures[0].axes
    assert axes.get_ylabel() == label
    assert axes.get_xlabel().startswith("lr (learning rate")
    drawn = {str(line.get_label()): np.asarray(line.get_ydata()).tolist() for line in axes.lines}
    assert drawn == curves
