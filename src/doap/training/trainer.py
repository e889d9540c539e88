"""The training loop, to be read top to bottom.

A run folder holds: recipe.yaml; run.json (data, device, versions); log.csv (a line a step);
checkpoint.safetensors (to resume from); and at the end weights.safetensors with its card.
"""

import csv
import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import doap
from doap.errors import DoapError
from doap.files import atomic_folder, write_text
from doap.networks import registry
from doap.networks.architecture import build
from doap.networks.descriptor import Descriptor, to_input
from doap.objectives import AveragePrecisionLoss
from doap.patches.frameset import FrameSet
from doap.patches.patchset import PatchSet
from doap.training.batches import Batches
from doap.training.checkpoint import load_checkpoint, save_checkpoint
from doap.training.memory import keep_freed_memory
from doap.training.recipe import Recipe, read_recipe

CHECKPOINT_STEPS = 100

# Told the share of the training that is done, in [0, 1], and the last loss.
Progress = Callable[[float, float], None]


def train(
    recipe: Recipe,
    data: PatchSet | FrameSet,
    run: Path,
    name: str = "doap",
    origin: str = "in memory",
    device: str = "cpu",
    progress: Progress = lambda _done, _loss: None,
) -> Descriptor:
    """Train a descriptor by AP and leave everything in a run folder.

    Args:
        recipe: what to train, and how.
        data: what to train on.
        run: folder of the run. One that holds an unfinished run of the same recipe and data goes on from
            its last checkpoint, to the same weights, bit for bit, as if never stopped.
        name: of the model, on its card.
        origin: where the data comes from, for the record.
        device: "cpu" or "cuda".
        progress: called after every step.

    Raises:
        DoapError: if the run folder holds another training, or the loss stops being a number.
    """
    about = _start_run(run, recipe, origin, data, device)
    if device == "cpu":
        keep_freed_memory()
    torch.manual_seed(recipe.seed)
    network = build(recipe.architecture, recipe.dropout).to(device)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it
    objective = AveragePrecisionLoss(recipe.kind, recipe.bins, recipe.pooled)
    optimiser = torch.optim.SGD(
        network.parameters(), recipe.initial_rate(), recipe.momentum, weight_decay=recipe.weight_decay
    )
    batches = Batches(data, recipe, device)
    descriptor = Descriptor(network, recipe.kind, data.extent, name)

    checkpoint, first_epoch, done = run / "checkpoint.safetensors", 0, 0
    if checkpoint.exists():
        first_epoch, done = load_checkpoint(checkpoint, network, optimiser)
    network.train()
    with _Log(run / "log.csv", first_epoch, done) as log:
        for epoch in range(first_epoch, recipe.epochs):
            count = batches.count(epoch)
            for number, batch in enumerate(batches.draw(epoch, done), done):
                rate = recipe.rate(epoch, number / count)
                for group in optimiser.param_groups:
                    group["lr"] = rate
                with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                    outputs = network(to_input(batch.pixels, network.input_size))
                loss = objective(outputs.float(), batch.groups, batch.ignore)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                value = loss.item()
                if not np.isfinite(value):
                    raise DoapError(f"{run}: the loss is {value} at batch {number} of epoch {epoch}; lower the rate")
                log.write(epoch, number, value, rate)
                progress((epoch + (number + 1) / count) / recipe.epochs, value)
                if (number + 1) % CHECKPOINT_STEPS == 0:
                    log.flush()
                    save_checkpoint(checkpoint, network, optimiser, epoch, number + 1)
            done = 0
            log.flush()
            save_checkpoint(checkpoint, network, optimiser, epoch + 1, 0)
    data_of, notes = about["data"], {key: about[key] for key in ("patches", "device", "threads", "versions")}
    made = registry.Origin(data=data_of, recipe=recipe.model_dump(), notes=notes)
    registry.save(descriptor, run / "weights.safetensors", recipe.architecture, made)
    return descriptor.eval()


def _start_run(run: Path, recipe: Recipe, origin: str, data: PatchSet | FrameSet, device: str) -> dict[str, Any]:
    """Make the run folder, or check that the one there is of the same training."""
    about: dict[str, Any] = {
        "data": origin,
        "patches": repr(data),
        "device": device,
        "threads": torch.get_num_threads(),
        "versions": {
            "doap": doap.__version__,
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }
    if not run.exists():
        with atomic_folder(run) as folder:
            (folder / "recipe.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
            (folder / "run.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    elif not (run / "run.json").exists():
        raise DoapError(f"{run}: exists and is not the folder of a run; choose another")
    elif read_recipe(run / "recipe.yaml") != recipe:
        raise DoapError(f"{run}: holds a run of another recipe; choose another folder")
    elif read_run(run)["patches"] != repr(data):
        raise DoapError(f"{run}: holds a run on another set; choose another folder")
    elif (run / "weights.safetensors").exists():
        raise DoapError(f"{run}: this training is complete; choose another folder for a new one")
    return about


def read_run(run: Path) -> dict[str, Any]:
    """What run.json says: data, patches, device, threads, versions."""
    try:
        about: dict[str, Any] = json.loads((run / "run.json").read_text(encoding="utf-8"))
        return {**about, "data": str(about["data"]), "patches": str(about["patches"])}
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise DoapError(f"{run}: not the folder of a run") from fault


class _Log:
    """log.csv, cut back to the checkpoint that training goes on from."""

    COLUMNS = ("epoch", "batch", "loss", "lr")

    def __init__(self, path: Path, epoch: int, batch: int) -> None:
        kept: list[list[str]] = []
        if path.exists():
            with path.open(newline="") as file:
                rows = [row for row in csv.reader(file) if len(row) == len(self.COLUMNS)][1:]
            kept = [row for row in rows if (int(row[0]), int(row[1])) < (epoch, batch)]
        write_text(path, "".join(",".join(row) + "\n" for row in [list(self.COLUMNS), *kept]))
        self._file = path.open("a", newline="")

    def __enter__(self) -> "_Log":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, epoch: int, batch: int, loss: float, rate: float) -> None:
        self._file.write(f"{epoch},{batch},{loss:.6f},{rate:.6g}\n")

    def flush(self) -> None:
        self._file.flush()


def read_losses(run: Path) -> list[float]:
    """The loss of every step of a run."""
    with (run / "log.csv").open(newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]
