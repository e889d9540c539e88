"""The tables of the docs are those of the results beside them, and the studies measured are those that ship."""

import json
import re
from pathlib import Path

import pytest

import result_tables
from doap.experiments.study_plan import folder_name, read_study
from doap.training.recipes.recipe import Recipe

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", result_tables.PAGES, ids=lambda path: path.name)
def test_the_page_has_the_tables_of_the_results(path: Path) -> None:
    assert result_tables.filled(path) == path.read_text(encoding="utf-8"), "run python tools/result_tables.py"


@pytest.mark.parametrize("path", sorted(result_tables.RESULTS.glob("*.json")), ids=lambda path: path.name)
def test_a_result_names_no_path_of_a_machine(path: Path) -> None:
    assert re.findall(r'"(?:/|~/)\w[^"]*"', path.read_text(encoding="utf-8")) == []


def test_the_studies_that_were_measured_are_those_that_ship() -> None:
    commands = re.findall(
        r"^doap study (\S+) (.+)$", (result_tables.DOCS / "study.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [name for name, _ in commands] == list(result_tables.STUDIES)
    for name, options in commands:
        study = read_study(name, re.findall(r"--set (\S+)", options))
        measured = json.loads((result_tables.RESULTS / f"study-{name}.json").read_text(encoding="utf-8"))
        for row in measured["rows"]:
            recorded = measured["runs"][folder_name(row["run"], row["setting"], row["seed"])]["recipe"]
            trained = Recipe.model_validate(recorded)  # keys that the record lacks have their defaults
            recipe = study.recipe(row["run"], row["setting"], row["seed"])
            # A study validates on a set of its own: val_fraction has no effect.
            assert trained == recipe.model_copy(update={"val_fraction": trained.val_fraction}), row
        assert {row["run"] for row in measured["rows"]} == set(study.runs)
