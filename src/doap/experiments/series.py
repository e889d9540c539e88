"""Several trainings on one set: each in its own run folder, the set loaded once."""

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from doap.errors import DoapError
from doap.files import make_folder, write_text
from doap.networks.card import read_card
from doap.networks.descriptor import Descriptor
from doap.networks.registry import load
from doap.parsing.json_files import read_json
from doap.training.data_cache import Data, DataCache
from doap.training.log import Status
from doap.training.recipes.reading import RENAMED_KEYS
from doap.training.recipes.recipe import Recipe
from doap.training.run_folder import WEIGHTS, DataSpec, check_run, is_complete, is_unstarted
from doap.training.trainer import IN_MEMORY, check_training, train

Evaluator = Callable[[Path, Descriptor], Mapping[str, float]]
"""Evaluation of a run: `evaluate(run_folder, model)` returns measures by name, the most important first."""

RunRow = dict[str, Any]
"""Row of a result table: the columns that identify a run, then its measures."""

RunStatusCallback = Callable[[str, Status], None]
"""Callback of several trainings: `callback(run_name, status)`."""


MAX_PART = 120  # bytes of a setting in the name of a folder
MAX_READABLE = 40
UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Series:
    """Settings shared by several trainings.

    Attributes:
        data: Training set.
        folder: Parent of the run folders.
        source: Origin of the data, for the record.
        device: "cpu" or "cuda".
        validation: Set for the AP after every epoch; by default the `val_fraction` of each recipe.
        progress: Callback, called as progress(run_name, status).
        cache: Cache of loaded sets.
    """

    data: Data
    folder: Path
    source: DataSpec = IN_MEMORY
    device: str = "cpu"
    validation: Data | None = None
    progress: RunStatusCallback = lambda _run, _status: None
    cache: DataCache = field(default_factory=DataCache)

    def check(self, recipes: Mapping[str, Recipe]) -> None:
        """Check that all trainings can run and that existing run folders hold them, before any is started.

        Args:
            recipes: Recipe of each run, by name.

        Raises:
            DoapError: If a folder holds another training, or a recipe does not fit the set.
        """
        make_folder(self.folder)
        patches, fingerprint = repr(self.data), self.source.fingerprint(self.data)
        validation_fingerprint = self.source.fingerprint_validation(self.validation)
        for name, recipe in recipes.items():
            run = self.folder / name
            old = self.folder / _old_name(name)
            if old.exists() and not run.exists():
                old.rename(run)
            if not is_unstarted(run):
                # The last weights do not depend on the validation set.
                check_run(run, recipe, patches, fingerprint, None if is_complete(run) else validation_fingerprint)
            if not is_complete(run):
                check_training(recipe, self.data, self.validation, self.cache)

    def train(self, name: str, recipe: Recipe) -> Descriptor:
        """Train or resume a run unless it is complete, and return its model."""
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
                cache=self.cache,
            )
        # Always read from disk, so that the model has the same bits whether it was trained now or before.
        return load(run / WEIGHTS, self.device, fast=False)

    def describe(self, name: str, recipe: Recipe) -> dict[str, Any]:
        """Return recipe, data, device and versions of a run, for the record."""
        return {"recipe": recipe.model_dump(), **read_json(self.folder / name / "run.json")}

    def write(self, name: str, rows: Sequence[RunRow], content: Mapping[str, Any]) -> None:
        """Write the rows to NAME.csv and the whole content to NAME.json."""
        table = io.StringIO()
        columns = list(dict.fromkeys(column for row in rows for column in row))
        writer = csv.DictWriter(table, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(self.folder / f"{name}.csv", table.getvalue())
        write_text(self.folder / f"{name}.json", json.dumps(content, indent=1) + "\n")


def shared_split(recipes: Iterable[Recipe]) -> str | None:
    """Return the split that several trainings on one set have in common.

    Raises:
        DoapError: If they have different ones.
    """
    splits = {recipe.split for recipe in recipes}
    if len(splits) > 1:
        raise DoapError("the trainings have different values of split, but share one training set; set the same split")
    return splits.pop()


def folder_part(setting: str) -> str:
    """Return a setting as part of the name of a run folder: the same if it can be, else short and with a hash.

    Example:
        >>> folder_part("lr=0.5"), folder_part("teacher=/runs/large/weights.safetensors")
        ('lr=0.5', 'teacher=runs-large-weights.safetensors-129194ad')
    """
    if not UNSAFE.search(setting) and len(setting.encode()) <= MAX_PART:
        return setting
    key, _, value = setting.partition("=")
    readable = re.sub(r"[^\w.+-]+", "-", value, flags=re.ASCII).strip("-.")[-MAX_READABLE:].lstrip("-.")
    return f"{key}={readable}-{hashlib.sha256(setting.encode()).hexdigest()[:8]}"


def weights_hash(run: Path) -> str | None:
    """Return the SHA-256 of the weights of a complete run, else None."""
    return read_card(run / WEIGHTS).sha256 if is_complete(run) else None


def _old_name(name: str) -> str:
    """Return the name of a run folder in version 0.1, where recipe keys had other names.

    Example:
        >>> _old_name("batch_size=64"), _old_name("ap,bin_power=1.5,seed=0"), _old_name("ap,lr=1.0,seed=0")
        ('list_size=64', 'ap,spacing=1.5,seed=0', 'ap,lr=1.0,seed=0')
    """
    for old, new in RENAMED_KEYS.items():
        name = re.sub(rf"(^|,){new}=", rf"\g<1>{old}=", name)
    return name
