from pathlib import Path

import pytest

from doap.evaluation.harness.result import Result
from doap.evaluation.phototour.figure import draw_phototour
from support.figures import points, record_figures


def test_every_descriptor_is_a_curve_in_its_colour_and_a_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tested = [("liberty", "sift"), ("liberty", "a-yosemite"), ("yosemite", "sift")]
    result = Result(
        benchmark="phototour",
        settings={},
        methods=[{"name": name} for name in ("a-yosemite", "never tested", "sift")],
        scores=[{"descriptor": name, "test": scene, "fpr95": 10.0 * n} for n, (scene, name) in enumerate(tested)],
        curves=[
            {"descriptor": name, "test": scene, "false positive rate": [0.01, 1.0], "recall": [0.5 + n / 10, 1.0]}
            for n, (scene, name) in enumerate(tested)
        ],
    )
    written = record_figures(monkeypatch)
    draw_phototour(result, tmp_path / "roc.png")
    liberty, yosemite = written[0].axes
    assert [axes.get_title() for axes in (liberty, yosemite)] == ["tested on liberty", "tested on yosemite"]
    drawn = {(axes, line.get_label()): line for axes in (liberty, yosemite) for line in axes.lines}
    drawn = {key: line for key, line in drawn.items() if not str(key[1]).startswith("_")}  # dots have no name
    assert set(drawn) == {(liberty, "sift"), (liberty, "a-yosemite"), (yosemite, "sift")}
    assert points(drawn[liberty, "a-yosemite"]) == [[1, 60], [100, 100]]
    assert (
        drawn[liberty, "sift"].get_color()
        == drawn[yosemite, "sift"].get_color()
        != drawn[liberty, "a-yosemite"].get_color()
    )
    dots = [points(line) for line in liberty.lines if line.get_marker() == "o"]
    assert dots == [[[0.01, 95]], [[10, 95]]]  # a rate of 0 has no place on a logarithmic axis: the lowest
    (legend,) = written[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["a-yosemite", "sift"]
