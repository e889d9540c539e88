"""The tables of docs/evaluation.md are what the results beside it give."""

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_says_what_was_measured() -> None:
    spec = importlib.util.spec_from_file_location("doc_tables", DOCS / "tables.py")
    assert spec
    assert spec.loader
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    page = (DOCS / "evaluation.md").read_text(encoding="utf-8")
    assert tables.filled(page) == page, "run python docs/tables.py"
