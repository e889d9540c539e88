"""What others published, quoted beside what is measured; every figure with its source in published.yaml."""

from functools import cache
from pathlib import Path
from typing import Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, model_validator

from doap.evaluation.harness.table import Row, Table, number
from doap.types import Kind

FILE = Path(__file__).with_suffix(".yaml")


class Published(BaseModel):
    """The figures of one method in one table."""

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
    def _every_source_is_named(self) -> Self:
        unknown = {row.source for row in self.rows} - set(self.sources)
        if unknown:
            raise ValueError(f"no such source: {', '.join(sorted(unknown))}")
        return self


@cache
def _read() -> _File:
    return _File.model_validate(yaml.safe_load(FILE.read_text(encoding="utf-8")))


def published(table: str) -> list[Published]:
    """The rows of a table, in the order of their publication: real-valued descriptors first."""
    return [row for row in _read().rows if row.table == table]


def sources(table: str) -> list[str]:
    """Where the rows of a table come from, in words."""
    return [_read().sources[key] for key in dict.fromkeys(row.source for row in published(table))]


def published_table(table: str, digits: int) -> Table:
    """All rows of a table as they were published, a column a figure."""
    rows = published(table)
    figures = max((tuple(row.figures) for row in rows), key=len)  # some row has them all
    cells = [(row.method, size(row.kind, row.dimensions)) for row in rows]
    values = [tuple(number(row.figures.get(name), digits) for name in figures) for row in rows]
    body = tuple(Row((*words, *numbers), quoted=True) for words, numbers in zip(cells, values, strict=True))
    return Table(("method", "size", *figures), body, words=2, note=notes(rows))


def size(kind: Kind, dimensions: int) -> str:
    """How long a descriptor is, as tables say it: dimensions, or bits with a b."""
    return f"{dimensions}b" if kind == "binary" else str(dimensions)


def notes(rows: list[Published]) -> str:
    """What must be said of single rows."""
    return "; ".join(f"{row.method}: {row.note}" for row in rows if row.note)
