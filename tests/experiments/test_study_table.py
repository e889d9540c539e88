from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from doap.experiments.study_figure import draw_study
from doap.experiments.study_table import Standing, standings, study_table

T_975 = {1: 12.706, 2: 4.303}  # quantiles of Student's t by degrees of freedom, as statistical tables print them


def row(run: str, tried: str, seed: int, *values: float) -> dict[str, Any]:
    return {"run": run, "tried": tried, "seed": seed, **dict(zip(("pairs", "lists"), values, strict=False))}


ROWS = [
    row("ap", "lr=0.1", 0, 70.0, 90.0),
    row("ap", "lr=0.5", 0, 71.0, 91.0),
    row("hardnet", "lr=0.1", 0, 72.0, 80.0),
    row("hardnet", "lr=0.5", 0),
    row("alone", "", 0, 60.0, 95.0),
    row("ap", "lr=0.5", 1, 74.0, 92.0),
    row("ap", "lr=0.5", 2, 73.0, 96.0),
    row("hardnet", "lr=0.1", 1, 71.0, 82.0),
    row("hardnet", "lr=0.1", 2),
]
CHOSEN = {"ap": "lr=0.5", "hardnet": "lr=0.1", "alone": ""}


def test_runs_stand_by_their_means_over_the_seeds_of_what_was_chosen() -> None:
    found = standings(ROWS, CHOSEN, ["pairs", "lists"])
    assert [(each.run, each.values["pairs"]) for each in found] == [
        ("ap", (71, 74, 73)),
        ("hardnet", (72, 71)),
        ("alone", (60,)),
    ]
    assert found[0].mean("lists") == pytest.approx(93)


def test_intervals_are_students() -> None:
    ap, hardnet, alone = standings(ROWS, CHOSEN, ["pairs", "lists"])
    for each, degrees in ((ap, 2), (hardnet, 1)):
        values = np.array(each.values["pairs"])
        spread = np.sqrt(((values - values.mean()) ** 2).sum() / degrees)
        assert each.reach("pairs") == pytest.approx(T_975[degrees] * spread / np.sqrt(len(values)), rel=1e-4)
    assert alone.reach("pairs") is None


def test_the_table_stars_the_best_of_each_column_and_shows_who_failed() -> None:
    table = study_table(standings(ROWS, CHOSEN, ["pairs", "lists"]), ["triplet"])
    assert table.columns == ("run", "chosen", "seeds", "AP %, pairs", "AP %, lists")
    first, second, third, last = (each.cells for each in table.rows)
    assert first[:3] == ("ap", "lr=0.5", "3")
    assert first[3].startswith("72.67 ± 3.79")
    assert [cell.endswith("*") for cell in (first[3], second[3], third[3])] == [True, False, False]
    assert third == ("alone", "", "1", "60.00", "95.00*")
    assert last == ("triplet", "failed", "0", "-", "-")


@pytest.mark.parametrize("measures", [["pairs"], ["pairs", "lists"]])
def test_the_figure_shows_every_seed(tmp_path: Path, measures: list[str]) -> None:
    draw_study(standings(ROWS, CHOSEN, measures), "title", tmp_path / "study.png")
    with Image.open(tmp_path / "study.png") as picture:
        assert picture.width > 500


def test_one_run_can_be_drawn(tmp_path: Path) -> None:
    draw_study([Standing("ap", "", {"lists": (90.0,)})], "title", tmp_path / "study.png")
    assert (tmp_path / "study.png").exists()
