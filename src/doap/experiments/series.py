"""Trainings on one set, one after another: each in a folder of its own, on a set that is loaded once."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from doap.files import make_folder, write_text
from doap.networks.descriptor import Descriptor
from doap.networks.registry import load
from doap.training.log import Status
from doap.training.recipe import Recipe
from doap.training.run_folder import WEIGHTS, Source, check_run, is_complete
from doap.training.sources import Data, Sources
from doap.training.trainer import IN_MEMORY, train

# What is measured of a run, given its folder and its model: numbers by name, the one that matters first.
Judge = Callable[[Path, Descriptor], Mapping[str, float]]
# A line of a table: what tells a run from the others, then what was measured of it.
Row = dict[str, Any]
# Told the name of a run, and how far its training is.
Progress = Callable[[str, Status], None]


@dataclass(frozen=True)
class Series:
    """What the trainings share.

    Attributes:
        data: what to train on.
        folder: of all of them; each has its own in it, by its name.
        source: where the data comes from, for the record.
        device: "cpu" or "cuda".
        validation: judged after every epoch; by default what each recipe holds out.
        progress: called when news of a training comes in.
        sources: where sets are loaded, once.
    """

    data: Data
    folder: Path
    source: Source = IN_MEMORY
    device: str = "cpu"
    validation: Data | None = None
    progress: Progress = lambda _run, _status: None
    sources: Sources = field(default_factory=Sources)

    def check(self, recipes: Mapping[str, Recipe]) -> None:
        """Refuse a folder of other trainings before hours are spent on these, given by name."""
        make_folder(self.folder)
        for name, recipe in recipes.items():
            if (self.folder / name).exists():
                check_run(self.folder / name, recipe, repr(self.data))

    def train(self, name: str, recipe: Recipe) -> Descriptor:
        """The model of a run: trained, or gone on with, or only read if it is complete."""
        run = self.folder / name
        if not is_complete(run):
            train(
                recipe=recipe,
                data=self.data,
                run=run,
                name=name,
                source=self.source,
                device=self.device,
                validation=self.validation,
                progress=lambda status: self.progress(name, status),
                sources=self.sources,
            )
        # As it is on disk, so that it is the same model to the last bit whether it was trained now or before.
        return load(run / WEIGHTS, self.device)

    def describe(self, name: str, recipe: Recipe) -> dict[str, Any]:
        """Recipe, data, device and versions of a run, for the record."""
        return {"recipe": recipe.model_dump(), **json.loads((self.folder / name / "run.json").read_text())}

    def write(self, name: str, rows: Sequence[Row], content: Mapping[str, Any]) -> None:
        """Write NAME.csv, the rows, and NAME.json, all that is known."""
        table = io.StringIO()
        columns = list(dict.fromkeys(column for row in rows for column in row))
        writer = csv.DictWriter(table, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(self.folder / f"{name}.csv", table.getvalue())
        write_text(self.folder / f"{name}.json", json.dumps(content, indent=1) + "\n")
