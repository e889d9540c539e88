"""Finding results: files of `doap eval … --json`, folders of `doap sweep`, and pictures, by what they hold."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from doap.errors import DoapError
from doap.evaluation.harness.result import Result, read_result

PICTURES = ("alignment", "label-mining")  # what the names of pictures begin with


class SweepFile(BaseModel):
    """What `doap sweep` leaves in sweep.json, as far as it is shown."""

    model_config = ConfigDict(frozen=True)

    over: str
    recipe: str = ""
    settings: list[str] = []
    tests: list[str] = []
    rows: list[dict[str, Any]]


@dataclass
class Gathered:
    """Everything that a report shows, each with the file it came from, in the order given."""

    results: list[tuple[Path, Result]] = field(default_factory=list)
    sweeps: list[tuple[Path, SweepFile]] = field(default_factory=list)
    pictures: list[tuple[Path, str]] = field(default_factory=list)
    left_out: list[Path] = field(default_factory=list)


def gather(paths: Sequence[Path]) -> Gathered:
    """Read results, sweeps and pictures.

    Args:
        paths: files, or folders of them. What is not known is refused when it is given itself, and left out when
            it lies in a folder that is given.

    Raises:
        DoapError: one line that names the file and the error.
    """
    found = Gathered()
    for path in paths:
        if not path.is_dir():
            _add(found, path)
            continue
        inside = sorted(file for file in path.iterdir() if file.suffix == ".json" or _picture(file))
        if not inside:
            raise DoapError(f"{path}: no results in it (.json files of doap eval or doap sweep, {_names()})")
        for file in inside:
            try:
                _add(found, file)
            except DoapError:
                found.left_out.append(file)
    return found


def _add(found: Gathered, file: Path) -> None:
    kind = _picture(file)
    if kind and file.is_file():
        found.pictures.append((file, kind))
        return
    if not file.exists():
        raise DoapError(f"{file}: no such file")
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise DoapError(f"{file}: neither a .json file of results nor a picture ({_names()})") from error
    if isinstance(content, dict) and {"over", "rows"} <= set(content):
        found.sweeps.append((file, _read_sweep(file, content)))
    else:
        found.results.append((file, read_result(file)))


def _read_sweep(file: Path, content: dict[str, Any]) -> SweepFile:
    try:
        sweep = SweepFile.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise DoapError(f"{file}: not of a sweep ({'.'.join(map(str, first['loc']))}: {first['msg']})") from error
    if not sweep.rows:
        raise DoapError(f"{file}: a sweep without a run")
    return sweep


def _picture(file: Path) -> str:
    """What a picture shows, by its name; empty if it is none."""
    return next((kind for kind in PICTURES if file.suffix == ".png" and file.name.startswith(kind)), "")


def _names() -> str:
    return ", ".join(f"{kind}.png" for kind in PICTURES)
