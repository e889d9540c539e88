"""The folder of a run: what it holds, and whether it belongs to the training that wants to go on in it.

recipe.yaml; run.json (data, device, versions); log.csv and validation.csv; tensorboard/; mined.npz, if labels
are mined; checkpoint.safetensors, to resume from; best.safetensors, with its card, if there is validation;
and at the end weights.safetensors with its card.
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
class Source:
    """Where the data of a run comes from, for the record.

    Attributes:
        data: what is trained on.
        split: of HPatches, whose training half it is; empty otherwise.
        validation: what is judged on, if it is another set.
    """

    data: str = "in memory"
    split: str = ""
    validation: str = ""


def describe_run(
    data: PatchSet | FrameSet,
    source: Source,
    device: str,
    devices: int,
    precision: str,
    teacher: dict[str, str] | None = None,
) -> dict[str, Any]:
    """What run.json says."""
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


def start_run(run: Path, recipe: Recipe, about: dict[str, Any]) -> None:
    """Make the run folder, or check that the one there is of the same training and unfinished."""
    if not run.exists():
        with atomic_folder(run) as folder:
            (folder / "recipe.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
            (folder / "run.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        return
    if not (run / "run.json").exists():
        raise DoapError(f"{run}: exists and is not the folder of a run; choose another")
    check_run(run, recipe, about["patches"])
    if read_run(run).teacher != about["teacher"]:
        raise DoapError(f"{run}: its teacher {recipe.teacher} has other weights now; put the old back, or start anew")
    if is_complete(run):
        raise DoapError(f"{run}: this training is complete; choose another folder for a new one")


def check_run(run: Path, recipe: Recipe, patches: str) -> None:
    """Refuse the folder of a run of another recipe, or on another set than what `patches` says in words."""
    if read_run(run).patches != patches:
        raise DoapError(f"{run}: holds a run on another set; choose another folder")
    if read_recorded_recipe(run / "recipe.yaml") != recipe:
        raise DoapError(f"{run}: holds a run of another recipe; choose another folder")


def forget_failure(run: Path) -> None:
    """Remove what a failure left: the run has come past it."""
    for file in (run / FAILURE, run / LAST_GOOD, (run / LAST_GOOD).with_suffix(".json")):
        file.unlink(missing_ok=True)


def is_complete(run: Path) -> bool:
    """Whether a training has ended: its weights are there, and their card, which is written after them."""
    return (run / WEIGHTS).exists() and (run / WEIGHTS).with_suffix(".json").exists()


@dataclass(frozen=True)
class Run:
    """What run.json says, as far as it is needed again."""

    source: Source
    patches: str
    device: str
    devices: int
    teacher: dict[str, str] | None


def read_run(run: Path) -> Run:
    """Read run.json."""
    try:
        about = json.loads((run / "run.json").read_text(encoding="utf-8"))
        source = Source(str(about["data"]), str(about["split"]), str(about["validation"]))
        return Run(source, str(about["patches"]), str(about["device"]), int(about["devices"]), about.get("teacher"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DoapError(f"{run}: not the folder of a run") from error
