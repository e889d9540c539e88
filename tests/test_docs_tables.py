"""The tables of the pages in docs are what the results beside them give."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("page", ["evaluation.md", "study.md"])
def test_the_page_says_what_was_measured(page: str) -> None:
    spec = importlib.util.spec_from_file_location("doc_tables", DOCS / "tables.py")
    assert spec
    assert spec.loader
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    assert tables.filled(DOCS / page) == (DOCS / page).read_text(encoding="utf-8"), "run python docs/tables.py"
