"""Run folders: their files, and whether one belongs to a training.

A run folder holds recipe.yaml; run.json (data, device, versions); log.csv and validation.csv; tensorboard/; mined.npz,
if labels are mined; checkpoint.safetensors, to resume from; best.safetensors with its card, if there is validation; and
at the end weights.safetensors with its card.
"""

import json
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.files import atomic_folder
from doap.training.recipe import Recipe, read_recorded_recipe
from doap.version import __version__

CHECKPOINT, WEIGHTS, BEST, LAST_GOOD = (
    f"{name}.safetensors" for name in ("checkpoint", "weights", "best", "last-good")
)
FAILURE = "failure.json"
MINED = "mined.npz"


@dataclass(frozen=True)
class DataSpec:
    """Origin of the data of a run, as recorded in run.json.

    Attributes:
        data: Path or description of the training set.
        split: Split of HPatches whose training sequences are used; empty otherwise.
        validation: Path of a separate validation set; empty otherwise.
    """

    data: str = "in memory"
    split: str = ""
    validation: str = ""


@dataclass(frozen=True)
class RunInfo:
    """The parts of run.json that are read again.

    Attributes:
        source: Origin of the data.
        patches: Training set, as its `repr`.
        device: "cpu" or "cuda".
        devices: Number of processes.
        teacher: Name or path and SHA-256 of the teacher, or None.
    """

    source: DataSpec
    patches: str
    device: str
    devices: int
    teacher: dict[str, str] | None


def describe_run(
    data: PatchSet | FrameSet,
    source: DataSpec,
    device: str,
    devices: int,
    precision: str,
    teacher: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return the content of run.json."""
    return {
        **asdict(source),
        "patches": repr(data),
        "device": device,
        "devices": devices,
        "precision": precision,
        "threads": torch.get_num_threads(),
        "teacher": teacher,
        "versions": {
            "doap": __version__,
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }


def start_run(run: Path, recipe: Recipe, info: dict[str, Any]) -> None:
    """Create a run folder, or check that the existing one holds the same, unfinished training.

    Raises:
        DoapError: If the folder holds something else.
    """
    if not run.exists():
        with atomic_folder(run) as folder:
            (folder / "recipe.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
            (folder / "run.json").write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")
        return
    if not (run / "run.json").exists():
        raise DoapError(f"{run}: exists and is not a run folder; choose another folder")
    check_run(run, recipe, info["patches"])
    if read_run(run).teacher != info["teacher"]:
        raise DoapError(
            f"{run}: the weights of its teacher {recipe.teacher} have changed; restore them, or choose another folder"
        )
    if is_complete(run):
        raise DoapError(f"{run}: this training is complete; choose another folder for a new one")


def check_run(run: Path, recipe: Recipe, patches: str) -> None:
    """Check that a run folder holds a run of a recipe on a set, given as its `repr`.

    Raises:
        DoapError: If it holds another run.
    """
    if read_run(run).patches != patches:
        raise DoapError(f"{run}: holds a run on another set; choose another folder")
    if read_recorded_recipe(run / "recipe.yaml") != recipe:
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
        info = json.loads((run / "run.json").read_text(encoding="utf-8"))
        source = DataSpec(str(info["data"]), str(info["split"]), str(info["validation"]))
        return RunInfo(source, str(info["patches"]), str(info["device"]), int(info["devices"]), info.get("teacher"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DoapError(f"{run}: not a run folder") from error
