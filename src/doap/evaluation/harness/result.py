"""What a benchmark leaves: one form for all, so that tables, files, figures and the report read the same thing."""

import csv
import io
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from doap.errors import DoapError
from doap.files import write_text
from doap.version import __version__

Score = dict[str, str | int | float | None]


def _versions() -> dict[str, str]:
    return {"torch": str(torch.__version__), "numpy": np.__version__, "python": platform.python_version()}


class Result(BaseModel):
    """The figures of one run of a benchmark, and all that it takes to repeat it.

    `scores` is tidy: each row holds one descriptor under one condition. The first column is "descriptor", then come the
    conditions, then what was measured; rates are in percent.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    benchmark: str
    settings: dict[str, Any] = Field(description="data, and every choice and rule that the figures hang on")
    methods: list[dict[str, Any]] = Field(
        validation_alias=AliasChoices("methods", "contenders"),  # the second in files of version 0.1
        description="`Method.about` of each",
    )
    scores: list[Score]
    curves: list[dict[str, Any]] = Field(
        default_factory=list, description="what figures draw beyond the scores: a descriptor, its condition, and points"
    )
    comparisons: list[Score] = Field(default_factory=list, description="each two descriptors, where they are tested")
    doap: str = __version__
    versions: dict[str, str] = Field(default_factory=_versions)

    def write_json(self, path: Path) -> None:
        """Write everything, atomically."""
        write_text(path, self.model_dump_json(indent=1) + "\n")

    def write_csv(self, path: Path) -> None:
        """Write the scores as a table, atomically."""
        text = io.StringIO()
        columns = list(dict.fromkeys(column for row in self.scores for column in row))
        table = csv.DictWriter(text, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(self.scores)
        write_text(path, text.getvalue())


def read_result(file: Path) -> Result:
    """Read what `write_json` wrote; a DoapError says in one line why that cannot be."""
    try:
        return Result.model_validate_json(file.read_bytes())
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror})") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise DoapError(f"{file}: not the result of a benchmark ({place}: {first['msg']})") from error
