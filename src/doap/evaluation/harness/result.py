"""The result of a benchmark, the same for all: tables, files, figures and the report are made from it."""

import csv
import io
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from doap.errors import DoapError
from doap.files import write_text
from doap.version import __version__

Score = dict[str, str | int | float | None]
"""One row of a result: values by column."""

OLD_NAMES = {
    "contenders": "methods",
    "given": "spec",
    "fair": "tie-aware",
    "right neighbours": "correct neighbours",
    "right within 1 px": "correct within 1 px",
    "right within 3 px": "correct within 3 px",
    "right within 5 px": "correct within 5 px",
    "right within 10 px": "correct within 10 px",
    "geometry right": "geometry correct",
}
"""Current names by those of version 0.1: keys of all objects, and values of the column "rule"."""


def _versions() -> dict[str, str]:
    return {"torch": str(torch.__version__), "numpy": np.__version__, "python": platform.python_version()}


class Result(BaseModel):
    """Scores of one benchmark run, and everything needed to repeat it.

    `scores` is tidy: each row holds one descriptor under one condition. The first column is "descriptor", followed by
    the conditions and then the measured values; rates are in percent.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    benchmark: str
    settings: dict[str, Any] = Field(description="data, options and rules that the scores depend on")
    methods: list[dict[str, Any]] = Field(description="`Method.metadata` of each method")
    scores: list[Score]
    curves: list[dict[str, Any]] = Field(
        default_factory=list, description="points drawn in figures: the descriptor, its condition, and the points"
    )
    comparisons: list[Score] = Field(default_factory=list, description="paired tests, one per two descriptors")
    doap: str = __version__
    versions: dict[str, str] = Field(default_factory=_versions)

    @model_validator(mode="before")
    @classmethod
    def _rename(cls, content: Any) -> Any:
        return _rename_old(content) if isinstance(content, dict) else content

    def write_json(self, path: str | Path) -> None:
        """Write everything to a JSON file, atomically."""
        write_text(Path(path), self.model_dump_json(indent=1) + "\n")

    def write_csv(self, path: str | Path) -> None:
        """Write the scores to a CSV file, atomically."""
        text = io.StringIO()
        columns = list(dict.fromkeys(column for row in self.scores for column in row))
        table = csv.DictWriter(text, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(self.scores)
        write_text(Path(path), text.getvalue())


def read_result(file: str | Path) -> Result:
    """Read a result written by `Result.write_json`; names of version 0.1 are translated.

    Raises:
        DoapError: If the file cannot be read or is not a result.
    """
    try:
        return Result.model_validate_json(Path(file).read_bytes())
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror})") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the file"
        raise DoapError(f"{file}: not the result of a benchmark ({field}: {first['msg']})") from error


def _rename_old(content: dict[str, Any]) -> dict[str, Any]:
    """Translate the names of a result of version 0.1."""
    renamed = {OLD_NAMES.get(key, key): value for key, value in content.items()}
    for part in ("methods", "scores", "comparisons"):
        rows = renamed.get(part)
        if isinstance(rows, list):
            renamed[part] = [_rename_row(row) if isinstance(row, dict) else row for row in rows]
    return renamed


def _rename_row(row: dict[str, Any]) -> dict[str, Any]:
    renamed = {OLD_NAMES.get(key, key): value for key, value in row.items()}
    if "rule" in renamed:
        renamed["rule"] = OLD_NAMES.get(renamed["rule"], renamed["rule"])
    return renamed
