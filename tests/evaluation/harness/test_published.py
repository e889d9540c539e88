"""Quoted figures: each has a source, and the means of each table are correct or noted as wrong."""

import numpy as np
import pytest
from pydantic import ValidationError

from doap.evaluation.harness import published as module
from doap.evaluation.harness.published import published, published_table, sources
from doap.evaluation.phototour.tables import COMBINATIONS


@pytest.mark.parametrize(("table", "rows"), [("phototour", 18), ("romepatches", 6), ("hpatches", 5)])
def test_every_table_has_its_rows_and_their_sources(table: str, rows: int) -> None:
    assert len(published(table)) == rows
    assert all(len(source) > 10 for source in sources(table))


def test_the_means_are_those_of_the_figures_or_the_row_says_otherwise() -> None:
    compared = 0
    for row in published("phototour"):
        figures = [value for name, value in row.figures.items() if name != "mean"]
        if not figures:
            continue
        is_correct = abs(np.mean(figures) - row.figures["mean"]) < 0.011  # both are rounded
        assert is_correct != bool(row.note), row.method
        assert set(row.figures) - {"mean"} in (
            {f"{train}/{test}" for train, test in COMBINATIONS},
            {test for _, test in COMBINATIONS},
        )
        compared += 1
    assert compared == 17


def test_a_table_has_one_column_per_figure_and_dashes() -> None:
    actual = published_table("hpatches", 1)
    assert actual.columns == ("method", "size", "verification", "matching", "retrieval")
    assert actual.rows[0].cells == ("RootSIFT", "128", "-", "27.2", "42.5")
    assert all(row.quoted for row in actual.rows)


def test_a_row_without_a_source_is_refused() -> None:
    row = {"table": "hpatches", "method": "x", "dimensions": 1, "figures": {}, "source": "hearsay"}
    with pytest.raises(ValidationError, match="no such source: hearsay"):
        module._File.model_validate({"sources": {}, "rows": [row]})
