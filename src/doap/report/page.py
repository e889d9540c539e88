"""The page of a report: the paper's tables and figures in its order, what was measured and what was quoted."""

import re
import shutil
from collections.abc import Sequence
from html import escape
from itertools import count
from pathlib import Path
from typing import Any

from doap.errors import DoapError
from doap.evaluation.harness.published import sources
from doap.evaluation.harness.result import Result
from doap.evaluation.harness.table import Row, Table
from doap.files import atomic_file, make_folder, write_text
from doap.report import html
from doap.report.gather import Gathered, SweepFile
from doap.report.sections import SECTIONS, Section
from doap.report.shown import shown
from doap.version import __version__

TITLE = "Local descriptors optimised for Average Precision: results"


def write_report(gathered: Gathered, folder: Path, unavailable: Sequence[str] = ()) -> Path:
    """Draw the figures and write index.html; returns its path.

    Args:
        gathered: what to show.
        folder: for the page and its pictures.
        unavailable: keys of sections whose data set cannot be had.

    Raises:
        DoapError: if one of these keys is no section's, or has a result.
    """
    known = {section.key for section in SECTIONS}
    for key in unavailable:
        if key not in known or key in _keys(gathered):
            why = "has a result" if key in known else f"is none of {', '.join(sorted(known))}"
            raise DoapError(f"--unavailable: {key} {why}")
    make_folder(folder)
    further = [key for key in dict.fromkeys(_keys(gathered)) if key not in known]
    others = [Section(key, key, "", "Not in the paper.", "") for key in further]
    body = "".join(_section(section, gathered, folder, section.key in unavailable) for section in (*SECTIONS, *others))
    page = folder / "index.html"
    write_text(page, html.document(TITLE, _head(gathered, others) + body))
    return page


def _keys(gathered: Gathered) -> list[str]:
    """Which sections have something to show."""
    return [
        *(result.benchmark for _, result in gathered.results),
        *(sweep.over for _, sweep in gathered.sweeps),
        *(kind for _, kind in gathered.pictures),
    ]


def _head(gathered: Gathered, others: list[Section]) -> str:
    there = set(_keys(gathered))
    entries = "".join(
        f'<li><a href="#{escape(section.key)}">{escape(section.title)}</a>'
        f"{'' if section.key in there else ' <span class=none>(not measured)</span>'}</li>"
        for section in (*SECTIONS, *others)
    )
    read = [path for path, _ in (*gathered.results, *gathered.sweeps, *gathered.pictures)]
    left = f" Left out, since they are no results: {_files(gathered.left_out)}." if gathered.left_out else ""
    return (
        f"<h1>{escape(TITLE)}</h1>"
        f'<p class="soft">Written by doap {__version__} from {_files(read) or "nothing"}.{left}</p>'
        "<p>The tables and figures of the paper, in its order. Rows marked <i>quoted</i> are figures that others "
        "published, with their source beneath; all others were measured by the command that stands with them. The best "
        f"measured figure of a column is bold.</p><nav><ol>{entries}</ol></nav>"
    )


def _files(paths: list[Path]) -> str:
    return ", ".join(f"<code>{escape(str(path))}</code>" for path in paths)


def _section(section: Section, gathered: Gathered, folder: Path, unavailable: bool) -> str:
    place = f'<div class="place">{escape(section.place)}</div>' if section.place else ""
    said = f'<p class="soft">The paper says: {escape(section.said)}</p>' if section.said else ""
    measured = _measured(section, gathered, folder)
    made = html.commands(section.command) if section.command else ""
    if not measured:
        why = "data set not available" if unavailable else "no result was given"
        made = f'<div class="missing"><b>Not measured: {why}.</b> It is made by{made}</div>'
    elif made:
        made = f'<p class="soft">How it is made:</p>{made}'
    return (
        f'<section id="{escape(section.key)}"><h2>{escape(section.title)}</h2>{place}<p>{escape(section.about)}</p>'
        f"{measured}{_quoted(section, bool(measured))}{said}{made}</section>"
    )


def _measured(section: Section, gathered: Gathered, folder: Path) -> str:
    """All that was given for a section, one after another."""
    results = [(path, result) for path, result in gathered.results if result.benchmark == section.key]
    sweeps = [(path, sweep) for path, sweep in gathered.sweeps if sweep.over == section.key]
    pictures = [path for path, kind in gathered.pictures if kind == section.key]
    stem = re.sub(r"\W+", "-", section.key)  # a result from elsewhere may call its benchmark anything
    names = (f"{stem}-{number}.png" for number in count(1))
    return "".join(
        [
            *(_result(path, result, folder / next(names)) for path, result in results),
            *(_sweep(path, sweep, folder / next(names)) for path, sweep in sweeps),
            *(_picture(path, folder / next(names)) for path in pictures),
        ]
    )


def _result(file: Path, result: Result, figure: Path) -> str:
    how = shown(result.benchmark)
    try:
        tables = "".join(map(html.table, how.tables(result)))
        if how.draw:
            how.draw(result, figure)
    except (KeyError, IndexError, TypeError, ValueError) as error:  # written by hand, or by another version
        raise DoapError(f"{file}: not the figures of {result.benchmark} as they are now; measure again") from error
    drawn = html.picture(figure.name, f"Drawn from {file}") if how.draw else ""
    rule = f'<p class="soft">{escape(str(result.settings["rule"]))}.</p>' if "rule" in result.settings else ""
    versions = ", ".join(f"{name} {version}" for name, version in {"doap": result.doap, **result.versions}.items())
    about = {"file": str(file), "settings": result.settings, "descriptors": result.methods}
    return (
        f"<h3>Measured on {escape(_data(result))}</h3>{tables}{rule}{drawn}"
        f'{html.details("settings and descriptors", about)}<p class="soft">{escape(versions)}</p>'
    )


def _data(result: Result) -> str:
    data = result.settings.get("data", "data that the result does not name")
    return ", ".join(map(str, data)) if isinstance(data, list) else str(data)


def _sweep(file: Path, sweep: SweepFile, figure: Path) -> str:
    columns = tuple(dict.fromkeys(column for row in sweep.rows for column in row))
    rows = tuple(Row(tuple(_cell(row.get(column)) for column in columns)) for row in sweep.rows)
    picture = file.with_suffix(".png")
    drawn = _picture(picture, figure) if picture.is_file() else ""
    judged = f"FPR95 % on {', '.join(sweep.tests)}" if sweep.tests else "AP on held-out sequences, in [0, 1]"
    settings = f" with {' '.join(sweep.settings)}" if sweep.settings else ""
    return (
        f"<h3>Recipe {escape(sweep.recipe)}{escape(settings)}</h3>{html.table(Table(columns, rows))}"
        f'<p class="soft">PairsScore by {escape(judged)}. From <code>{escape(str(file))}</code>.</p>{drawn}'
    )


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)


def _picture(file: Path, copy: Path) -> str:
    with atomic_file(copy) as temporary:
        shutil.copyfile(file, temporary)
    return html.picture(copy.name, f"From {file}")


def _quoted(section: Section, measured: bool) -> str:
    """Published figures, where they are not in the measured table already, and their sources."""
    how = shown(section.key)
    if how.quoted is None:
        return ""
    alone = "" if measured and how.holds_quoted else f"<h3>Published</h3>{html.table(how.quoted())}"
    return f'{alone}<p class="soft">Quoted: {escape("; ".join(sources(section.published)))}.</p>'
