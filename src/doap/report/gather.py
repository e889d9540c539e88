"""Input of a report: results of `doap eval … --json`, sweeps and pictures, recognised by their content or name."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from doap.errors import DoapError
from doap.evaluation.harness.result import Result, read_result
from doap.parsing.json_files import read_json
from doap.training.recipes.reading import RENAMED_KEYS

PICTURES = ("alignment", "label-mining", "patches")  # prefixes of the names of pictures


class SweepMetric(BaseModel):
    """What the runs of a sweep were measured by, as `doap.experiments.sweep_metrics.Metric` records it."""

    model_config = ConfigDict(frozen=True)

    label: str
    better: Literal["less", "more"]
    column: str
    factor: float = 1


class SweepFile(BaseModel):
    """Entries of the sweep.json of `doap sweep` that a report shows."""

    model_config = ConfigDict(frozen=True)

    over: str
    recipe: str = ""
    settings: list[str] = []
    tests: list[str] = []
    split: str | None = None
    metric: SweepMetric
    rows: list[dict[str, Any]]


# Metrics of version 0.2 and earlier, which did not record them.
OLD_TEST_METRIC = SweepMetric(label="FPR95 %", better="less", column="fpr95")
OLD_VAL_METRIC = SweepMetric(label="AP on validation scenes %", better="more", column="ap", factor=100)


@dataclass
class ReportInput:
    """Everything that a report shows, each with its file, in the given order.

    Attributes:
        results: Results of benchmarks.
        sweeps: Sweeps over a recipe key.
        pictures: Pictures with the keys of their sections.
        left_out: Files in folders that are none of these.
    """

    results: list[tuple[Path, Result]] = field(default_factory=list)
    sweeps: list[tuple[Path, SweepFile]] = field(default_factory=list)
    pictures: list[tuple[Path, str]] = field(default_factory=list)
    left_out: list[Path] = field(default_factory=list)

    def keys(self) -> list[str]:
        """Return the keys of the sections that have something to show."""
        return [
            *(result.benchmark for _, result in self.results),
            *(sweep.over for _, sweep in self.sweeps),
            *(key for _, key in self.pictures),
        ]


def gather(paths: Sequence[Path]) -> ReportInput:
    """Read results, sweeps and pictures.

    Args:
        paths: Files, or folders of files. An unknown file is an error if it is given itself, and left out if it is in a
            given folder, whose hidden files are ignored.

    Raises:
        DoapError: If a file cannot be read or is unknown, or a folder has no results.
    """
    gathered = ReportInput()
    for path in paths:
        if not path.is_dir():
            _add(gathered, path)
            continue
        visible = (file for file in path.iterdir() if not file.name.startswith("."))
        files = sorted(file for file in visible if file.suffix == ".json" or _picture_key(file))
        if not files:
            raise DoapError(f"{path}: no results in it (.json files of doap eval or doap sweep, {_picture_names()})")
        for file in files:
            try:
                _add(gathered, file)
            except (DoapError, OSError):  # the latter: a folder named so, or a file that cannot be read
                gathered.left_out.append(file)
    return gathered


def _add(gathered: ReportInput, file: Path) -> None:
    key = _picture_key(file)
    if key and file.is_file():
        gathered.pictures.append((file, key))
        return
    if not file.exists():
        raise DoapError(f"{file}: no such file or folder")
    try:
        content = read_json(file)
    except ValueError as error:
        raise DoapError(f"{file}: neither a .json file of results nor a picture ({_picture_names()})") from error
    if isinstance(content, dict) and {"over", "rows"} <= set(content):
        gathered.sweeps.append((file, _read_sweep(file, content)))
    else:
        gathered.results.append((file, read_result(file)))


def _read_sweep(file: Path, content: dict[str, Any]) -> SweepFile:
    """Parse sweep.json; recipe keys of version 0.1 are translated."""
    metric = OLD_TEST_METRIC if content.get("tests") else OLD_VAL_METRIC
    try:
        sweep = SweepFile.model_validate({"metric": metric, **content})
    except ValidationError as error:
        first = error.errors()[0]
        raise DoapError(f"{file}: not of a sweep ({'.'.join(map(str, first['loc']))}: {first['msg']})") from error
    if not sweep.rows:
        raise DoapError(f"{file}: a sweep without a run")
    over = RENAMED_KEYS.get(sweep.over, sweep.over)
    # Only the key that varies is one of a recipe: a measure may have the name that such a key had.
    rows = [{over if name == sweep.over else name: value for name, value in row.items()} for row in sweep.rows]
    return sweep.model_copy(update={"over": over, "rows": rows})


def _picture_key(file: Path) -> str:
    """Return the section of a picture, by its name; empty if it is not a picture."""
    return next((key for key in PICTURES if file.suffix == ".png" and file.name.startswith(key)), "")


def _picture_names() -> str:
    return ", ".join(f"{key}.png" for key in PICTURES)
