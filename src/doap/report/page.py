"""HTML page of a report."""

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from doap.errors import DoapError
from doap.evaluation.harness.table import Row, Table
from doap.files import make_folder, write_text
from doap.report.content import section_content
from doap.report.gather import ReportInput
from doap.report.sections import SECTIONS, Section
from doap.version import __version__

TITLE = "Local descriptors optimised for Average Precision: results"


def write_report(
    gathered: ReportInput, folder: Path, unavailable: Sequence[str] = (), setup: Sequence[str] = ()
) -> Path:
    """Draw the figures and write index.html.

    Args:
        gathered: Results to show.
        folder: Folder for the page and its pictures.
        unavailable: Keys of sections whose data set cannot be obtained.
        setup: Lines about the whole run that a reader of the figures must know.

    Returns:
        Path of index.html.

    Raises:
        DoapError: If an unavailable key is not a section's or has a result, a result cannot be shown, or a picture lies
            in the folder.
    """
    known, measured = {section.key for section in SECTIONS}, set(gathered.keys())
    for key in unavailable:
        if key not in known or key in measured:
            reason = "has a result" if key in known else f"is none of {', '.join(sorted(known))}"
            raise DoapError(f"--unavailable: {key} {reason}")
    for picture, _ in gathered.pictures:
        if picture.parent.resolve() == folder.resolve():
            raise DoapError(
                f"{picture}: is in the folder of the page, whose pictures may replace it; choose another output"
            )
    make_folder(folder)
    others = [key for key in dict.fromkeys(gathered.keys()) if key not in known]
    sections = (*SECTIONS, *(Section(key, key, "", "Not in the paper.", "") for key in others))
    contents = [section_content(section, gathered, folder, section.key in unavailable) for section in sections]
    files = [path for path, _ in (*gathered.results, *gathered.sweeps, *gathered.pictures)]
    page = folder / "index.html"
    text = (
        templates()
        .get_template("page.html.j2")
        .render(
            title=TITLE,
            version=__version__,
            contents=contents,
            files=files,
            left_out=gathered.left_out,
            setup=setup,
        )
    )
    write_text(page, text)
    return page


def templates() -> Environment:
    """Return the templates of this folder; everything put into them is escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["best_cells"] = best_cells
    return environment


def best_cells(table: Table) -> dict[int, str]:
    """Return the cell with the best measured number of each column, by the index of the column.

    Empty if it is not known which numbers are better, or if there are fewer than two measured rows.
    """
    measured = [row for row in table.rows if not row.quoted]
    if table.better is None or len(measured) < 2:
        return {}
    choose = min if table.better == "less" else max
    best = {}
    for column in range(table.text_columns, len(table.columns)):
        values = {row.cells[column]: value for row in measured if (value := _number(row, column)) is not None}
        if values:
            best[column] = choose(values, key=values.__getitem__)
    return best


def _number(row: Row, column: int) -> float | None:
    try:
        return float(row.cells[column].split()[0])
    except ValueError:  # a dash: not measured
        return None
