"""Content of the sections of a report: tables, figures and facts, ready for the template."""

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from doap.errors import DoapError
from doap.evaluation.harness.published import sources
from doap.evaluation.harness.result import Result
from doap.evaluation.harness.table import Row, Table, number
from doap.evaluation.registry import BENCHMARKS
from doap.files import atomic_file
from doap.report.gather import ReportInput, SweepFile, SweepMetric
from doap.report.sections import QUOTED, Section
from doap.report.tidy import tidy_table


@dataclass(frozen=True)
class Picture:
    """A picture beside the page.

    Attributes:
        file: File name.
        caption: Text below it, also its alternative text.
    """

    file: str
    caption: str


@dataclass(frozen=True)
class Item:
    """One result, sweep or picture.

    Attributes:
        heading: Heading; empty for a picture.
        tables: Tables.
        note: Text below the tables.
        source: File named after the note.
        picture: Figure.
        details: Settings and methods as JSON, folded away.
        versions: Versions of the libraries.
    """

    heading: str = ""
    tables: Sequence[Table] = ()
    note: str = ""
    source: str = ""
    picture: Picture | None = None
    details: str = ""
    versions: str = ""


@dataclass(frozen=True)
class SectionContent:
    """A section with everything it shows.

    Attributes:
        section: Title, description and commands.
        items: Measured results.
        quoted: Table of published figures, unless a measured table holds them.
        sources: Sources of the published figures.
        is_unavailable: Whether the data set cannot be obtained.
    """

    section: Section
    items: list[Item] = field(default_factory=list)
    quoted: Table | None = None
    sources: str = ""
    is_unavailable: bool = False


def section_content(section: Section, gathered: ReportInput, folder: Path, is_unavailable: bool) -> SectionContent:
    """Collect the content of a section; draw its figures and copy its pictures to the folder of the page.

    Raises:
        DoapError: If a result does not have the scores of its benchmark.
    """
    # A result written elsewhere may name its benchmark anything; the stem has no path separators.
    stem = re.sub(r"\W+", "-", section.key)
    paths = (folder / f"{stem}-{number}.png" for number in count(1))
    items = [
        *(_result(file, r, next(paths)) for file, r in gathered.results if r.benchmark == section.key),
        *(_sweep(file, s, next(paths)) for file, s in gathered.sweeps if s.over == section.key),
        *(Item(picture=_copy(file, next(paths))) for file, key in gathered.pictures if key == section.key),
    ]
    quoted = QUOTED[section.published]() if section.published else None
    if any(row.quoted for item in items for table in item.tables for row in table.rows):
        quoted = None
    cited = "; ".join(sources(section.published)) if section.published else ""
    return SectionContent(section, items, quoted, cited, is_unavailable)


def _result(file: Path, result: Result, figure: Path) -> Item:
    benchmark = BENCHMARKS.get(result.benchmark)
    try:
        tables = benchmark.tables(result) if benchmark else [tidy_table(result)]
        if benchmark:
            benchmark.draw(result, figure)
    except (KeyError, IndexError, TypeError, ValueError) as error:  # edited by hand, or of another version
        raise DoapError(f"{file}: not the scores of {result.benchmark} in this version; measure again") from error
    versions = {"doap": result.doap, **result.versions}
    settings = {"file": str(file), "settings": result.settings, "descriptors": result.methods}
    return Item(
        heading=f"Measured on {_data(result)}",
        tables=tables,
        note=f"{result.settings['rule']}." if "rule" in result.settings else "",
        picture=Picture(figure.name, f"Drawn from {file}") if benchmark else None,
        details=json.dumps(settings, indent=1, ensure_ascii=False),
        versions=", ".join(f"{name} {version}" for name, version in versions.items()),
    )


def _data(result: Result) -> str:
    data = result.settings.get("data", "data that the result does not name")
    return ", ".join(map(str, data)) if isinstance(data, list) else str(data)


def _sweep(file: Path, sweep: SweepFile, copy: Path) -> Item:
    metric = sweep.metric
    measured_on = f" on {', '.join(sweep.tests)}" if sweep.tests else ""
    of_split = f", split {sweep.split}" if sweep.tests and sweep.split else ""
    picture = file.with_suffix(".png")
    return Item(
        heading=f"Recipe {sweep.recipe}" + (f" with {' '.join(sweep.settings)}" if sweep.settings else ""),
        tables=[_sweep_table(sweep, metric)],
        note=f"Measured by {metric.label}{measured_on}{of_split}; {metric.better} is better.",
        source=str(file),
        picture=_copy(picture, copy) if picture.is_file() else None,
    )


def _sweep_table(sweep: SweepFile, metric: SweepMetric) -> Table:
    """Return one row per run: the value of the key and other columns, then the metric and that of each test."""
    columns = tuple(dict.fromkeys(column for row in sweep.rows for column in row))
    measured = tuple(name for name in columns if f"{name} ".startswith(f"{metric.column} "))
    others = tuple(name for name in columns if name not in measured)
    rows = tuple(
        Row(
            tuple(_format(row.get(name)) for name in others)
            + tuple(number(_scaled(row.get(name), metric.factor), 2) for name in measured)
        )
        for row in sweep.rows
    )
    names = tuple(metric.label + name.removeprefix(metric.column) for name in measured)
    return Table((*others, *names), rows, text_columns=len(others), better=metric.better)


def _scaled(value: Any, factor: float) -> float | None:
    return factor * value if isinstance(value, int | float) else None


def _format(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)


def _copy(file: Path, copy: Path) -> Picture:
    with atomic_file(copy) as temporary:
        shutil.copyfile(file, temporary)
    return Picture(copy.name, f"From {file}")
