"""Training of a network that corrects frames, by the Average Precision of what a descriptor makes of them."""

import csv
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor, nn

from doap.choices import DEFAULT_DETECTOR
from doap.datasets.tilted.tilted_set import TiltedSet
from doap.errors import DoapError
from doap.files import make_folder, write_text
from doap.images.correction.cutting import cut_patches
from doap.networks.card import Origin
from doap.networks.descriptor import Descriptor, check_device
from doap.networks.frames import FrameNetwork
from doap.networks.frames.frame_network import INPUT_SIZE
from doap.networks.frames.loading import load_initial, save_frame_network
from doap.networks.registry import find_card, load, save
from doap.objectives import AveragePrecisionLoss
from doap.objectives.baselines.affnet import HardNegativeConstantLoss
from doap.training.frames.batches import FrameBatch, TiltedBatches, align_orientations
from doap.training.frames.joint import check_descriptor, derive_origin, rename_tuned
from doap.training.frames.losses import covariance_loss
from doap.training.frames.recipe import FrameRecipe
from doap.types import Progress, no_progress

WEIGHTS, DESCRIPTOR, LOG, RECIPE = "weights.safetensors", "descriptor.safetensors", "log.csv", "recipe.json"
STEPS_PER_READ = 20  # losses read at once from a GPU, which would have to wait for each otherwise


@dataclass(frozen=True)
class FrameStatus:
    """Progress of a training: steps done, and the mean loss of the last ones."""

    step: int
    loss: float


StatusCallback = Callable[[FrameStatus], None]


class FrameTrainer:
    """State of a training.

    Args:
        recipe: What to train, and how.
        data: Training set.
        device: Device of the training.
        progress: Callback while the views are loaded, called as progress(done, total).

    Attributes:
        base: Identity of the descriptor before the training.
        base_card: Its card; None for a published baseline.
    """

    def __init__(
        self, recipe: FrameRecipe, data: TiltedSet, device: str = "cpu", progress: Progress = no_progress
    ) -> None:
        check_device(device)
        self.base = check_descriptor(recipe)
        self.base_card = find_card(recipe.descriptor)
        torch.manual_seed(recipe.seed)
        self.recipe, self.device = recipe, torch.device(device)
        self.network = FrameNetwork(recipe.network)
        if recipe.initial_weights is not None:
            load_initial(self.network, recipe.initial_weights)
        self.network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in stubs
        self.descriptor: Descriptor = load(recipe.descriptor, device, fast=False)
        if self.descriptor.kind != "real" and recipe.objective != "ap":
            raise DoapError(f"{recipe.descriptor}: objective {recipe.objective} needs real-valued descriptors")
        self.descriptor.requires_grad_(False)
        self.extent = self.descriptor.extent_for(DEFAULT_DETECTOR)
        self.loss = (
            AveragePrecisionLoss(self.descriptor.kind) if recipe.objective == "ap" else HardNegativeConstantLoss()
        )
        self.batches = TiltedBatches(data, recipe, device, progress)
        groups: list[dict[str, Any]] = [
            {"params": list(self.network.layers.parameters()), "divisor": 1.0},
            {"params": list(self.network.prediction.parameters()), "divisor": recipe.prediction_lr_divisor},
        ]
        if recipe.joint:
            groups.append({"params": list(self.descriptor.parameters()), "divisor": recipe.joint_lr_divisor})
        self.optimiser = torch.optim.AdamW(groups, lr=recipe.lr, weight_decay=recipe.weight_decay)

    def fit(self, log: "FrameLog") -> None:
        """Take all steps."""
        self.network.train()
        start, limit = time.monotonic(), 60 * (self.recipe.max_minutes or math.inf)
        for step, batch in zip(range(self.recipe.steps), self.batches.batches(), strict=False):
            fraction = max(step / self.recipe.steps, (time.monotonic() - start) / limit)
            if fraction >= 1:
                break
            log.add(step, self._step(fraction, batch))
        log.close()
        self.network.eval()

    def _step(self, fraction: float, batch: FrameBatch) -> Tensor:
        """Take one step after a fraction of all; return the ranking and covariance losses, (2,)."""
        recipe = self.recipe
        for group in self.optimiser.param_groups:
            group["lr"] = recipe.lr * (1 - fraction) / group["divisor"]
        is_joint = fraction >= 1 - recipe.joint
        self.descriptor.requires_grad_(is_joint)
        frames = self.correct(batch)
        covariance = covariance_loss(torch.cat([batch.jacobians @ frame[:, :, :2] for frame in frames]))
        if fraction < recipe.warm_up:
            ranking = torch.zeros_like(covariance)
            loss = covariance
        else:
            ranking = self._rank(align_orientations(frames[-1], batch.jacobians), batch)
            loss = ranking + recipe.covariance_weight * covariance
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step()
        return torch.stack([ranking, covariance]).detach()

    def correct(self, batch: FrameBatch) -> list[Tensor]:
        """Return the frames of a batch after each pass, (M, 2, 3) each."""
        settings, frames, passes = self.recipe.network, batch.frames, []
        for _ in range(settings.passes):
            patches = cut_patches(self.batches.atlas, frames, batch.photos, INPUT_SIZE, settings.extent)
            frames = torch.cat([frames[:, :, :2] @ self.network(patches), frames[:, :, 2:]], 2)
            passes.append(frames)
        return passes

    def _rank(self, frames: Tensor, batch: FrameBatch) -> Tensor:
        size = self.descriptor.input_size
        patches = cut_patches(self.batches.atlas, frames, batch.photos, size, self.extent)
        loss: Tensor = self.loss(self.descriptor.network(patches).float(), batch.groups, batch.ignore)
        return loss


class FrameLog:
    """Log of a training as CSV; losses are read in blocks, because a GPU would have to wait for each.

    Args:
        file: Open file.
        progress: Callback after every block.
    """

    def __init__(self, file: TextIO, progress: StatusCallback) -> None:
        self._file, self._progress = file, progress
        self._step = 0
        self._writer = csv.writer(file, lineterminator="\n")
        self._writer.writerow(("step", "seconds", "ranking", "covariance"))
        self._pending: list[Tensor] = []
        self._start = time.monotonic()

    def add(self, step: int, losses: Tensor) -> None:
        """Add the (2,) losses of a step.

        Raises:
            DoapError: If a loss is not finite.
        """
        self._pending.append(losses)
        self._step = step + 1
        if len(self._pending) == STEPS_PER_READ:
            self._read()

    def close(self) -> None:
        """Write the last losses."""
        if self._pending:
            self._read()

    def _read(self) -> None:
        rows = torch.stack(self._pending).tolist()
        self._pending.clear()
        for number, row in enumerate(rows, self._step - len(rows)):
            self._writer.writerow((number, f"{time.monotonic() - self._start:.1f}", *(f"{loss:.5f}" for loss in row)))
        self._file.flush()
        mean = sum(map(sum, rows)) / len(rows)
        if not math.isfinite(mean):
            raise DoapError(f"{self._file.name}: the loss is not finite before step {self._step}; lower lr")
        self._progress(FrameStatus(self._step, mean))


def train_frames(
    recipe: FrameRecipe,
    data: TiltedSet,
    run: Path,
    name: str,
    origin: Origin,
    device: str = "cpu",
    progress: StatusCallback = lambda _status: None,
) -> FrameNetwork:
    """Train a network and write weights, card, recipe and log to a run folder.

    Args:
        recipe: What to train, and how.
        data: Training set.
        run: New folder.
        name: Name of the network on its card, and of the descriptor if it is trained, too.
        origin: Provenance for the card; the descriptor also inherits that of the model it was before.
        device: "cpu" or "cuda".
        progress: Callback after every few steps.

    Raises:
        DoapError: If the folder exists, the descriptor is handcrafted, or a loss is not finite.
    """
    if run.exists():
        raise DoapError(f"{run}: exists already; choose another folder")
    trainer = FrameTrainer(recipe, data, device)
    make_folder(run)
    write_text(run / RECIPE, recipe.model_dump_json(indent=1) + "\n")
    with (run / LOG).open("w", encoding="utf-8", newline="") as file:
        trainer.fit(FrameLog(file, progress))
    origin = origin.model_copy(update={"recipe": recipe.model_dump()})
    save_frame_network(trainer.network, run / WEIGHTS, name, origin)
    card = trainer.base_card  # read before the training, in which the file may be replaced
    if recipe.joint and card is not None:
        tuned = rename_tuned(trainer.descriptor, name)
        save(tuned, run / DESCRIPTOR, card.architecture, derive_origin(card, trainer.base, origin))
    return trainer.network
