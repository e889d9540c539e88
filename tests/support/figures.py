"""Figures as objects: what was drawn, before it became a picture."""

from typing import Any

import pytest
from matplotlib.figure import Figure


def record_figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Return a list that gets every figure that is written from now on."""
    figures: list[Figure] = []
    savefig = Figure.savefig

    def record(self: Figure, *arguments: Any, **options: Any) -> None:
        figures.append(self)
        savefig(self, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", record)
    return figures
