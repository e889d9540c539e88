"""The folder of a run: what it holds, and whether it belongs to the training that wants to go on in it.

recipe.yaml; run.json (data, device, versions); log.csv and validation.csv; tensorboard/; mined.npz, if labels
are mined; checkpoint.safetensors, to resume from; best.safetensors, with its card, if there is validation;
and at the end weights.safetensors with its card.
"""

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

import doap
from doap.errors import DoapError
from doap.files import atomic_folder
from doap.patches.frameset import FrameSet
from doap.patches.patchset import PatchSet
from doap.training.recipe import Recipe, read_recipe

CHECKPOINT, WEIGHTS, BEST, LAST_GOOD = (
    f"{name}.safetensors" for name in ("checkpoint", "weights", "best", "last-good")
)
FAILURE = "failure.json"
MINED = "mined.npz"


def describe_run(data: PatchSet | FrameSet, origin: str, validation: str, device: str, devices: int) -> dict[str, Any]:
    """What run.json says."""
    return {
        "data": origin,
        "patches": repr(data),
        "validation": validation,
        "device": device,
        "devices": devices,
        "threads": torch.get_num_threads(),
        "versions": {
            "doap": doap.__version__,
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
    elif not (run / "run.json").exists():
        raise DoapError(f"{run}: exists and is not the folder of a run; choose another")
    elif read_recipe(run / "recipe.yaml") != recipe:
        raise DoapError(f"{run}: holds a run of another recipe; choose another folder")
    elif read_run(run)["patches"] != about["patches"]:
        raise DoapError(f"{run}: holds a run on another set; choose another folder")
    elif (run / WEIGHTS).exists():
        raise DoapError(f"{run}: this training is complete; choose another folder for a new one")


def read_run(run: Path) -> dict[str, Any]:
    """What run.json says: data, patches, validation, device, devices, threads, versions."""
    try:
        about: dict[str, Any] = json.loads((run / "run.json").read_text(encoding="utf-8"))
        return {**about, "data": str(about["data"]), "patches": str(about["patches"])}
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise DoapError(f"{run}: not the folder of a run") from fault
