"""Published figures, quoted beside measured ones; published.yaml names the source of each."""

from functools import cache
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from doap.evaluation.harness.table import Row, Table, number
from doap.parsing.yaml_files import read_yaml
from doap.types import Kind

FILE = Path(__file__).with_suffix(".yaml")


class Published(BaseModel):
    """Published figures of one method in one table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: Literal["phototour", "romepatches", "hpatches"]
    method: str
    kind: Kind = "real"
    dimensions: int
    figures: dict[str, float]
    source: str
    note: str = ""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    sources: dict[str, str]
    rows: list[Published]

    @model_validator(mode="after")
    def _check_sources(self) -> Self:
        unknown = {row.source for row in self.rows} - set(self.sources)
        if unknown:
            raise ValueError(f"no such source: {', '.join(sorted(unknown))}")
        return self


@cache
def _read() -> _File:
    return _File.model_validate(read_yaml(FILE))


def published(table: str) -> list[Published]:
    """Return the rows of a published table in their original order: real-valued descriptors first."""
    return [row for row in _read().rows if row.table == table]


def sources(table: str) -> list[str]:
    """Return the sources of a table's rows, as text."""
    return [_read().sources[key] for key in dict.fromkeys(row.source for row in published(table))]


def published_table(table: str, digits: int) -> Table:
    """Return all rows of a published table, one column per figure."""
    rows = published(table)
    figures = max((tuple(row.figures) for row in rows), key=len)  # some row has them all
    body = tuple(
        Row(
            (
                row.method,
                size(row.kind, row.dimensions),
                *(number(row.figures.get(name), digits) for name in figures),
            ),
            quoted=True,
        )
        for row in rows
    )
    return Table(("method", "size", *figures), body, text_columns=2, note=notes(rows))


def size(kind: Kind, dimensions: int) -> str:
    """Return the length of a descriptor as tables write it: dimensions, or bits followed by b."""
    return f"{dimensions}b" if kind == "binary" else str(dimensions)


def notes(rows: list[Published]) -> str:
    """Return the notes of all rows that have one."""
    return "; ".join(f"{row.method}: {row.note}" for row in rows if row.note)
