"""The tables of the pages in docs are what the results beside them give, and these are of what ships."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from doap.training.study_plan import folder_name, read_study

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("doc_tables", DOCS / "tables.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["../README.md", "evaluation.md", "study.md"])
def test_the_page_says_what_was_measured(tables: ModuleType, page: str) -> None:
    path = (DOCS / page).resolve()
    assert tables.filled(path) == path.read_text(encoding="utf-8"), "run python docs/tables.py"


def test_the_studies_that_were_measured_are_those_that_ship(tables: ModuleType) -> None:
    commands = re.findall(r"^doap study (\S+) (.+)$", (DOCS / "study.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name, _ in commands] == list(tables.STUDIES)
    for name, options in commands:
        study = read_study(name, re.findall(r"--set (\S+)", options))
        measured = json.loads((tables.RESULTS / f"study-{name}.json").read_text(encoding="utf-8"))
        for row in measured["rows"]:
            recipe = study.recipe(row["run"], row["tried"], row["seed"]).model_dump()
            recorded = measured["runs"][folder_name(row["run"], row["tried"], row["seed"])]["recipe"]
            # What is held out by default is not, where a set to be judged by is given.
            assert {**recorded, "held_out": 0, "spacing": recorded.get("spacing")} == {**recipe, "held_out": 0}, row
        assert {row["run"] for row in measured["rows"]} == set(study.runs)
