"""HTML and tables of the Models tab."""

import html
from typing import Any

from doap.app.models.catalogue import list_entries, list_figures
from doap.app.models.charts import ChartPoint, render_chart
from doap.evaluation.harness.cards import card_facts

LONG = 6  # lines of a fact above which it is folded

Speeds = dict[str, float]
"""Patches per second by name of the model; empty if they were not measured."""


def render_charts(figure: str, speeds: Speeds) -> str:
    """Return a metric against bytes, and against speed if that was measured."""
    entries = [entry for entry in list_entries() if figure in entry.figures]
    by_bytes = [ChartPoint(entry.name, entry.bytes, entry.figures[figure], entry.kind == "binary") for entry in entries]
    by_speed = [
        ChartPoint(entry.name, speeds[entry.name], entry.figures[figure], entry.kind == "binary")
        for entry in entries
        if entry.name in speeds
    ]
    first = render_chart(by_bytes, f"{figure} against bytes", "bytes per descriptor", "bytes", _short(figure))
    second = (
        render_chart(by_speed, f"{figure} against speed", "patches per second", "patches/s", _short(figure))
        if speeds
        else "<p>Press <em>Measure speed</em> to time all models on this machine; it takes some seconds.</p>"
    )
    return (
        '<div class="doap-key"><span class="real">real-valued</span><span class="binary">binary</span></div>'
        f'<div class="doap-charts"><div><h2>Against bytes</h2>{first}</div>'
        f"<div><h2>Against speed</h2>{second}</div></div>"
    )


def make_table(speeds: Speeds) -> dict[str, Any]:
    """Return headers and one row per model; columns of numbers are numbers, so that they are sorted as such."""
    figures = list_figures()
    columns = ["model", "kind", "bytes", "dimensions or bits", "parameters", "file, kB", "patches/s", *figures]
    rows = [
        [
            entry.name,
            entry.kind,
            entry.bytes,
            entry.dimensions,
            entry.parameters,
            round(entry.file_bytes / 1000),
            round(speeds[entry.name]) if entry.name in speeds else None,
            *(entry.figures.get(name) for name in figures),
        ]
        for entry in list_entries()
    ]
    return {"headers": columns, "data": rows}


def render_card(name: str) -> str:
    """Return all facts on a card; long lists are folded."""
    terms = "".join(
        f"<dt>{html.escape(heading)}</dt><dd>{_lines(lines)}</dd>" for heading, lines in card_facts(name).items()
    )
    return f'<div class="doap-card"><dl>{terms}</dl></div>'


def _lines(lines: list[str]) -> str:
    text = "<br>".join(map(html.escape, lines))
    return text if len(lines) <= LONG else f"<details><summary>{len(lines)} entries</summary>{text}</details>"


def _short(figure: str) -> str:
    """Return the metric without its benchmark, for the axis."""
    return figure.partition(",")[0] if "%" in figure.partition(",")[0] else figure.rpartition(", ")[2]
