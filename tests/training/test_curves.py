from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from doap.training.curves import draw_losses, draw_training
from support.figures import record_figures


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    return record_figures(monkeypatch)


def test_one_curve_per_training(tmp_path: Path, figures: list[Figure]) -> None:
    draw_losses({"real": [0.9, 0.5, 0.4], "binary": [0.8, 0.7]}, tmp_path / "loss.png")
    (axes,) = figures[0].axes
    drawn = {str(line.get_label()): np.asarray(line.get_xydata()).tolist() for line in axes.lines}
    assert drawn == {"real": [[1, 0.9], [2, 0.5], [3, 0.4]], "binary": [[1, 0.8], [2, 0.7]]}
    assert (tmp_path / "loss.png").exists()


def test_losses_their_running_mean_and_the_validation_are_drawn(tmp_path: Path, figures: list[Figure]) -> None:
    losses = list(np.linspace(1, 0.2, 100))
    epochs = list(np.linspace(0.02, 2, 100))
    draw_training(epochs, losses, [(0, 0.5), (1, 0.75)], tmp_path / "training.png")
    axes, validation = figures[0].axes
    points, mean = axes.lines
    assert np.asarray(points.get_ydata()).tolist() == losses
    expected = [(losses[step - 1] + losses[step]) / 2 for step in range(1, 100)]  # over a fiftieth of the steps
    np.testing.assert_allclose(np.asarray(mean.get_xydata()), np.column_stack([epochs[1:], expected]))
    assert np.asarray(validation.lines[0].get_xydata()).tolist() == [[1, 50], [2, 75]]
    assert [text.get_text() for text in validation.texts] == ["75.0"]


def test_without_validation_there_is_one_axis(tmp_path: Path, figures: list[Figure]) -> None:
    draw_training([1.0], [0.5], [], tmp_path / "training.png")
    assert len(figures[0].axes) == 1
