from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from doap.experiments.series import RunRow
from doap.experiments.study_figure import draw_study
from doap.experiments.study_table import RunSummary, study_table, summarise_runs
from support.figures import record_figures

T_975 = {1: 12.706, 2: 4.303}  # quantiles of Student's t by degrees of freedom, as statistical tables print them


def row(run: str, setting: str, seed: int, *values: float) -> RunRow:
    return {"run": run, "setting": setting, "seed": seed, **dict(zip(("pairs", "lists"), values, strict=False))}


ROWS = [
    row("ap", "lr=0.1", 0, 70.0, 90.0),
    row("ap", "lr=0.5", 0, 71.0, 91.0),
    row("hardnet", "lr=0.1", 0, 72.0, 80.0),
    row("hardnet", "lr=0.5", 0),
    row("alone", "", 0, 60.0, 95.0),
    row("triplet", "", 0),
    row("ap", "lr=0.5", 1, 74.0, 92.0),
    row("ap", "lr=0.5", 2, 73.0, 96.0),
    row("hardnet", "lr=0.1", 1, 71.0, 82.0),
    row("hardnet", "lr=0.1", 2),
]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    return record_figures(monkeypatch)


def test_runs_are_sorted_by_the_mean_of_their_best_setting_over_the_seeds() -> None:
    summaries = summarise_runs(ROWS)
    assert [(summary.run, summary.setting, summary.values["pairs"]) for summary in summaries] == [
        ("ap", "lr=0.5", (71, 74, 73)),
        ("hardnet", "lr=0.1", (72, 71)),
        ("alone", "", (60,)),
    ]
    assert summaries[0].mean("lists") == pytest.approx(93)
    assert summarise_runs([row("triplet", "", 0)]) == []


def test_intervals_are_students() -> None:
    ap, hardnet, alone = summarise_runs(ROWS)
    for summary, degrees in ((ap, 2), (hardnet, 1)):
        values = np.array(summary.values["pairs"])
        spread = np.sqrt(((values - values.mean()) ** 2).sum() / degrees)
        expected = T_975[degrees] * spread / np.sqrt(len(values))
        assert summary.half_interval("pairs") == pytest.approx(expected, rel=1e-4)
    assert alone.half_interval("pairs") is None


def test_the_table_stars_the_best_of_each_column_and_shows_failed_runs() -> None:
    table = study_table(summarise_runs(ROWS), ["triplet"])
    assert table.columns == ("run", "setting", "seeds", "AP %, pairs", "AP %, lists")
    first, second, third, last = (row.cells for row in table.rows)
    assert first[:3] == ("ap", "lr=0.5", "3")
    assert first[3].startswith("72.67 ± 3.79")
    assert [cell.endswith("*") for cell in (first[3], second[3], third[3])] == [True, False, False]
    assert third == ("alone", "", "1", "60.00", "95.00*")
    assert last == ("triplet", "failed", "0", "-", "-")


@pytest.mark.parametrize("measures", [["pairs"], ["pairs", "lists"]])
def test_the_figure_shows_every_seed_and_the_means(tmp_path: Path, figures: list[Figure], measures: list[str]) -> None:
    rows = [{key: value for key, value in row.items() if key in ("run", "setting", "seed", *measures)} for row in ROWS]
    summaries = summarise_runs(rows)
    draw_study(summaries, "title", tmp_path / "study.png")
    panels = figures[0].axes
    assert [axes.get_xlabel() for axes in panels] == [f"AP %, {measure}" for measure in measures]
    names = [tick.get_text() for tick in panels[0].get_yticklabels()]
    assert names == ["ap  lr=0.5", "hardnet  lr=0.1", "alone"]
    for axes, measure in zip(panels, measures, strict=True):
        points = [np.asarray(c.get_offsets()) for c in axes.collections if isinstance(c, PathCollection)]
        assert [set(seeds[:, 0]) for seeds in points] == [set(summary.values[measure]) for summary in summaries]
        assert [text.get_text() for text in axes.texts] == [f"{summary.mean(measure):.2f}" for summary in summaries]
    assert (tmp_path / "study.png").exists()


def test_one_run_can_be_drawn(tmp_path: Path, figures: list[Figure]) -> None:
    draw_study([RunSummary("ap", "", {"lists": (90.0,)})], "title", tmp_path / "study.png")
    (axes,) = figures[0].axes
    assert [text.get_text() for text in axes.texts] == ["90.00"]
