"""Run folders: their files, and whether one belongs to a training.

A run folder holds recipe.yaml; run.json (data, device, versions); log.csv and validation.csv; tensorboard/; mined.npz,
if the recipe mines labels; checkpoint.safetensors, to resume from, and until the end of the training the one before it;
best.safetensors with its card, if there is validation; and at the end weights.safetensors with its card. While a
process trains, it holds a lock on the file .lock.
"""

import filecmp
import hashlib
import json
import platform
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from doap.datasets.label_mining.mining import MinedLabels
from doap.datasets.official.fingerprint import fingerprint_training_set
from doap.datasets.official.training_set import SPLIT_LAYOUTS, layout_of, parts_of, used_sequences
from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.files import atomic_file, write_text
from doap.networks import registry
from doap.networks.baselines import list_baselines
from doap.networks.card import TrainingSet
from doap.parsing.json_files import read_json
from doap.training.log import EPOCHS_FILE, STEPS_FILE, has_steps, read_losses, read_validation
from doap.training.recipes.reading import read_recorded_recipe
from doap.training.recipes.recipe import Recipe
from doap.version import __version__

CHECKPOINT, WEIGHTS, BEST, LAST_GOOD = (
    f"{name}.safetensors" for name in ("checkpoint", "weights", "best", "last-good")
)
FAILURE = "failure.json"
MINED = "mined.npz"
RECIPE, RECORD = "recipe.yaml", "run.json"
TENSORBOARD = "tensorboard"

Identity = dict[str, str]
"""Name or path of a model, and the SHA-256 of its weights."""
Identities = Identity | list[Identity] | None
"""Identity of the model that a key of a recipe names, if any; of each if the key names several."""


@dataclass(frozen=True)
class DataSpec:
    """Origin of the data of a run, as recorded in run.json.

    Attributes:
        data: Path or description of the training set; several for a union.
        validation: Path of a separate validation set; empty otherwise.
    """

    data: list[str] = field(default_factory=lambda: ["in memory"])
    validation: str = ""

    @property
    def folders(self) -> list[Path]:
        """The paths among `data`."""
        return [Path(path) for path in self.data if Path(path).is_dir()]

    def fingerprint(self, data: PatchSet | FrameSet) -> str | None:
        """Return the fingerprint of the training set, see `fingerprint_training_set`; None for a set in memory."""
        return fingerprint_training_set(data, self.folders)

    def fingerprint_validation(self, validation: PatchSet | FrameSet | None) -> str | None:
        """Return the fingerprint of the separate validation set; None without one, and for a set in memory."""
        if validation is None or not self.validation:
            return None
        return fingerprint_training_set(validation, [Path(self.validation)])


@dataclass(frozen=True)
class RunInfo:
    """The parts of run.json that are read again.

    Attributes:
        source: Origin of the data.
        split: Split of HPatches in runs of version 0.2, which is part of the recipe since; empty otherwise.
        patches: Training set, as its `repr`.
        fingerprint: Fingerprint of the training set; None for a set in memory and in runs of earlier versions.
        validation_fingerprint: That of the separate validation set, if any; None in the same cases.
        device: "cpu" or "cuda".
        devices: Number of processes.
        teacher: The teacher, if any.
        initial_weights: The model that the training started from, if any.
    """

    source: DataSpec
    split: str
    patches: str
    fingerprint: str | None
    validation_fingerprint: str | None
    device: str
    devices: int
    teacher: Identities
    initial_weights: Identities


def describe_run(
    data: PatchSet | FrameSet,
    source: DataSpec,
    device: str,
    devices: int,
    precision: str,
    teacher: Identities = None,
    initial_weights: Identities = None,
    validation: PatchSet | FrameSet | None = None,
) -> dict[str, Any]:
    """Return the content of run.json."""
    return {
        **asdict(source),
        "patches": repr(data),
        "fingerprint": source.fingerprint(data),
        "validation_fingerprint": source.fingerprint_validation(validation),
        "device": device,
        "devices": devices,
        "precision": precision,
        "threads": torch.get_num_threads(),
        "teacher": teacher,
        "initial_weights": initial_weights,
        "versions": {
            "doap": __version__,
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }


def identify_weights(key: str, models: str | list[str] | None) -> Identities:
    """Return the identity of a model that a recipe names, those of a list of models, or None if it names none.

    Args:
        key: Key of the recipe, for errors.
        models: Name or path, as for `doap.load`, or several.

    Raises:
        DoapError: If a model cannot be loaded or has no weights.
    """
    if isinstance(models, list):
        return [_identify_model(key, model) for model in models]
    return None if models is None else _identify_model(key, models)


def _identify_model(key: str, model: str) -> Identity:
    if model in list_baselines():
        raise DoapError(f"{key}={model}: handcrafted, it has no weights; name a trained model")
    try:
        registry.load(model, fast=False)  # fails before there is a run folder
        content = registry.find_weights(model).read_bytes()
    except DoapError as error:
        raise DoapError(f"{key}={error}") from None
    return {"model": model, "sha256": hashlib.sha256(content).hexdigest()}


def check_mined(
    mined: Path, recipe: Recipe, data: PatchSet | FrameSet, validation: PatchSet | FrameSet | None = None
) -> None:
    """Check that a file of mined labels fits a training; the arguments are those of `train`.

    Raises:
        DoapError: If the recipe mines no labels, or the labels are of another set or of other settings.
    """
    if not recipe.label_mining:
        raise DoapError(f"{mined}: the recipe mines no labels; set label_mining=true, or leave the file out")
    if recipe.val_fraction and validation is None:
        raise DoapError(
            f"{mined}: labels are mined from the training set, which val_fraction={recipe.val_fraction:g} splits; set "
            "val_fraction=0, or split the set with doap data split"
        )
    MinedLabels.load(mined, data, recipe.mining)


def list_training_sets(data: PatchSet | FrameSet, source: DataSpec, split: str | None) -> list[TrainingSet]:
    """Return what a model is trained on, for its card."""
    sets = []
    for part, folder in parts_of(data, source.folders):
        layout = layout_of(part, folder)
        sets.append(
            TrainingSet(
                path=str(folder or ", ".join(source.data)),
                layout=layout,
                split=split or "" if layout in SPLIT_LAYOUTS else "",
                sequences=used_sequences(part) if layout else [],
            )
        )
    return sets


def start_run(run: Path, recipe: Recipe, info: dict[str, Any], mined: Path | None = None) -> None:
    """Write the record of a new run, or check that the folder holds the same, unfinished training.

    Args:
        run: The folder; one of a training without a step so far is used again.
        recipe: Recipe of the training.
        info: Content of run.json.
        mined: File of mined labels to copy to a new folder; an existing one must hold the same labels.

    Raises:
        DoapError: If the folder holds something else.
    """
    if not is_unstarted(run):
        _check_unfinished(run, recipe, info, mined)
        return
    try:
        _check_unfinished(run, recipe, info, mined)
    except DoapError:
        (run / MINED).unlink(missing_ok=True)
    write_text(run / RECORD, json.dumps(info, indent=1) + "\n")  # first: it tells our files from a user's
    write_text(run / RECIPE, recipe.to_yaml())
    if mined:
        with atomic_file(run / MINED) as temporary:
            shutil.copyfile(mined, temporary)


def is_unstarted(run: Path) -> bool:
    """Return whether a folder is free for a new run: missing, empty, or of a training that has not made a step."""
    if not run.exists():
        return True
    if not run.is_dir():
        return False
    names = {path.name for path in run.iterdir() if not path.name.startswith(".")}
    if not names:
        return True
    return (
        RECORD in names
        and names <= {RECORD, RECIPE, MINED, STEPS_FILE, EPOCHS_FILE, TENSORBOARD}
        and not has_steps(run)
    )


def _check_unfinished(run: Path, recipe: Recipe, info: dict[str, Any], mined: Path | None) -> None:
    """Check that a folder holds this training, unfinished; the arguments are those of `start_run`."""
    if not (run / RECORD).exists():
        raise DoapError(f"{run}: exists and is not a run folder; choose another folder")
    check_run(run, recipe, info["patches"], info["fingerprint"], info["validation_fingerprint"])
    if read_run(run).teacher != info["teacher"]:
        names = ", ".join(recipe.teachers)
        raise DoapError(
            f"{run}: the weights of its teacher {names} have changed; restore them, or choose another folder"
        )
    if read_run(run).initial_weights != info["initial_weights"]:
        raise DoapError(
            f"{run}: the weights {recipe.initial_weights} that it starts from have changed; restore them, or choose "
            "another folder"
        )
    if mined and not ((run / MINED).exists() and filecmp.cmp(mined, run / MINED, shallow=False)):
        raise DoapError(f"{run}: was not started with the mined labels {mined}; choose another folder")
    if is_complete(run):
        raise DoapError(f"{run}: this training is complete; choose another folder for a new one")
    read_losses(run), read_validation(run)  # fails before the set is loaded


def check_run(
    run: Path,
    recipe: Recipe,
    patches: str,
    fingerprint: str | None = None,
    validation_fingerprint: str | None = None,
) -> None:
    """Check that a run folder holds a run of a recipe on a set.

    Args:
        run: The folder.
        recipe: Recipe of the training.
        patches: Training set, as its `repr`.
        fingerprint: Fingerprint of the training set; compared if it is known here and in the record.
        validation_fingerprint: Fingerprint of the separate validation set; compared in the same case.

    Raises:
        DoapError: If it holds another run.
    """
    recorded = read_run(run)
    if recorded.patches != patches:
        raise DoapError(f"{run}: holds a run on another set; choose another folder")
    for kind, before, now in (
        ("training", recorded.fingerprint, fingerprint),
        ("validation", recorded.validation_fingerprint, validation_fingerprint),
    ):
        if None not in (before, now) and before != now:
            raise DoapError(f"{run}: its {kind} set has changed since; restore the set, or choose another folder")
    if read_recorded_recipe(run / RECIPE) != recipe:
        raise DoapError(f"{run}: holds a run of another recipe; choose another folder")


def remove_failure(run: Path) -> None:
    """Remove the files that a failed training left, once it has succeeded."""
    for file in (run / FAILURE, run / LAST_GOOD, (run / LAST_GOOD).with_suffix(".json")):
        file.unlink(missing_ok=True)


def is_complete(run: Path) -> bool:
    """Return whether a training is finished: its weights and their card, which is written last, exist."""
    return (run / WEIGHTS).exists() and (run / WEIGHTS).with_suffix(".json").exists()


def read_run(run: Path) -> RunInfo:
    """Read run.json.

    Raises:
        DoapError: If the folder is not a run folder.
    """
    try:
        info = read_json(run / RECORD)
        data = [info["data"]] if isinstance(info["data"], str) else info["data"]
        devices = int(info["devices"])
        if devices < 1:
            raise ValueError(devices)
        return RunInfo(
            source=DataSpec(list(map(str, data)), str(info["validation"])),
            split=str(info.get("split", "")),
            patches=str(info["patches"]),
            fingerprint=info.get("fingerprint"),
            validation_fingerprint=info.get("validation_fingerprint"),
            device=str(info["device"]),
            devices=devices,
            teacher=info.get("teacher"),
            initial_weights=info.get("initial_weights"),
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise DoapError(f"{run}: not a run folder, or its run.json is damaged; choose another folder") from error
