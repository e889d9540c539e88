"""The training loop, to be read top to bottom; what a run leaves behind is told in `run_folder`."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from doap.datasets.batches.resident_frames import ResidentFrames
from doap.datasets.batches.resident_patches import send
from doap.datasets.label_mining.mining import SIDE, MinedLabels, mine_labels
from doap.datasets.sets.groups import Ids
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.files import write_text
from doap.networks import registry
from doap.networks.architecture import build_network
from doap.networks.card import Origin
from doap.networks.descriptor import Descriptor, to_input
from doap.networks.network import PatchNetwork
from doap.networks.spatial_transformer import prediction_parameters
from doap.objectives import backward_in_chunks
from doap.training.averaging import MovingAverage
from doap.training.batches import Batch, Batches
from doap.training.checkpoint import TrainState, load_checkpoint, save_checkpoint
from doap.training.distributed import (
    InPrecision,
    SharedDropout,
    average_gradients,
    is_bfloat16,
    is_rank_zero,
    make_fabric,
    share_statistics,
)
from doap.training.log import Log, NotFiniteError, Status
from doap.training.memory import keep_freed_memory
from doap.training.objective import make_objective
from doap.training.recipe import Recipe
from doap.training.run_folder import (
    BEST,
    CHECKPOINT,
    FAILURE,
    LAST_GOOD,
    MINED,
    WEIGHTS,
    Source,
    describe_run,
    forget_failure,
    start_run,
)
from doap.training.sources import Data, Sources
from doap.training.teacher import Teacher, identify
from doap.training.validation import Validation

if TYPE_CHECKING:
    from lightning.fabric import Fabric

CHECKPOINT_SECONDS = 30.0
STEPS_A_BUNCH = 20  # losses asked for at once on a GPU, which would have to wait for each otherwise

IN_MEMORY = Source()

Progress = Callable[[Status], None]


def train(
    recipe: Recipe,
    data: Data,
    run: Path,
    name: str = "doap",
    source: Source = IN_MEMORY,
    device: str = "cpu",
    devices: int = 1,
    validation: Data | None = None,
    progress: Progress = lambda _status: None,
    sources: Sources | None = None,
) -> Descriptor:
    """Train a descriptor and leave everything in a run folder.

    Args:
        recipe: what to train, and how.
        data: what to train on.
        run: folder of the run. One that holds an unfinished run of the same recipe and data goes on from
            its last checkpoint, to the same weights, bit for bit, as if never stopped.
        name: of the model, on its card.
        source: where the data comes from, for the record.
        device: "cpu" or "cuda".
        devices: how many processes share the work, each with a device of its own. More than one needs a
            program that can be started again as it was: a script or a command, not a notebook.
        validation: judged by exact AP after every epoch; by default the share of the data's scenes that
            the recipe holds out, and none if that is 0.
        progress: called when news of the training comes in.
        sources: where the data may be loaded already; trainings that share one load a set once.

    Raises:
        DoapError: if the run folder holds another training, or the loss stops being a number.
    """
    precision = "bf16" if is_bfloat16(recipe, device) else "fp32"
    about = describe_run(data, source, device, devices, precision, identify(recipe))
    fabric = make_fabric(recipe, device, devices)
    if is_rank_zero():
        start_run(run, recipe, about)
    fabric.launch()
    fabric.barrier()
    make_reproducible(fabric.device)
    loaded = sources or Sources()
    if recipe.val_fraction and validation is None:
        data, validation = loaded.split(data, recipe)
    work = Training(recipe, data, run, fabric, progress, loaded)
    judge: Validation | None = None
    if validation is not None and fabric.is_global_zero:
        judge = Validation(validation, recipe, fabric.device, work.network.input_size, loaded)
    return work.go(Descriptor(work.kept, recipe.kind, data.extent, name), about, judge)


class Training:
    """Everything that a training moves: the network, the optimiser, and where they are.

    `kept` is what is judged and saved: the network itself, or the average of its weights.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: Data,
        run: Path,
        fabric: "Fabric",
        progress: Progress = lambda _status: None,
        sources: Sources | None = None,
    ) -> None:
        self.recipe, self.run, self.fabric, self.progress = recipe, run, fabric, progress
        torch.manual_seed(recipe.seed)
        self.network = build_network(recipe.architecture, recipe.dropout)
        self.network.to(fabric.device, memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in stubs
        if fabric.world_size > 1 and not recipe.chunk:  # of chunks, ranks may have different numbers
            share_statistics(self.network, fabric.device)
        self.average = MovingAverage(self.network, recipe.ema_decay) if recipe.ema_decay else None
        self.kept = self.average.network if self.average else self.network
        self.forward = InPrecision(torch.compile(self.network) if recipe.compile else self.network, fabric)
        self.objective = make_objective(recipe, fabric.world_size)
        self.teacher = Teacher(recipe.teacher, recipe, fabric) if recipe.teacher else None
        self.optimiser = make_optimiser(self.network, recipe)
        sources = sources or Sources()
        mined = self._mine(data, sources) if recipe.label_mining else None
        size, rank, ranks = self.network.input_size, fabric.global_rank, fabric.world_size
        tell = self._tell("loading the set")
        self.batches = Batches(data, recipe, fabric.device, size, mined, rank, ranks, tell, sources)
        self.place = TrainState()
        if (run / CHECKPOINT).exists():
            self.place = load_checkpoint(run / CHECKPOINT, self.network, self.optimiser, self.average)
        self.good = self._weights()
        self.saved = time.monotonic()

    def go(self, descriptor: Descriptor, about: dict[str, Any], validation: Validation | None) -> Descriptor:
        """All the epochs that are left, each judged by the validation if there is one."""
        origin = Origin(data=about["data"], recipe=self.recipe.model_dump(), notes=about)
        with self._log() as log:
            try:
                for epoch in range(self.place.epoch, self.recipe.epochs):
                    self._epoch(epoch, log)
                    self.place = TrainState(epoch + 1, 0, self.place.best)
                    if validation is not None:
                        self._validate(validation, log, epoch, descriptor, origin)
            except NotFiniteError as error:
                raise self._failed(error, descriptor, origin) from None
        if self.fabric.is_global_zero:
            self._save(self.place)
            registry.save(descriptor, self.run / WEIGHTS, self.recipe.architecture, origin)
            forget_failure(self.run)
        self.fabric.barrier()
        return descriptor.eval()

    def _epoch(self, epoch: int, log: Log) -> None:
        """The batches of an epoch that are left."""
        every = 1 if self.fabric.device.type == "cpu" else STEPS_A_BUNCH
        count, first = self.batches.count(epoch), self.place.batch
        self.network.train()
        for number, batch in enumerate(self.batches.draw(epoch, first), first):
            rate = self.recipe.lr_at(epoch, number / count)
            log.step(epoch, number, rate, self.step(batch, rate), batch.total)
            if len(log) >= every or number + 1 == count:
                log.ask(list(self.network.parameters()))
                self.good = self._weights()
                self._report(log, epoch + (number + 1) / count)
                self._keep(log, TrainState(epoch, number + 1, self.place.best))

    def step(self, batch: Batch, rate: float) -> Tensor:
        """One step down the gradient; gives the loss, which may still be under way on a GPU."""
        torch.manual_seed(batch.seed)
        for layer in self.network.modules():
            if isinstance(layer, SharedDropout):
                layer.rows, layer.total = batch.rows, batch.total
        for group in self.optimiser.param_groups:
            group["lr"] = rate / group["lr_divisor"]
        self.optimiser.zero_grad()
        inputs = to_input(batch.pixels, self.network.input_size)
        if self.recipe.chunk and len(inputs) > self.recipe.chunk:
            parts = torch.tensor_split(inputs, -(-len(inputs) // self.recipe.chunk))  # as even as can be
            loss = backward_in_chunks(self.forward, parts, lambda outputs: self._loss(outputs, batch))
        else:
            loss = self._loss(self.forward(inputs), batch)
            loss.backward()  # type: ignore[no-untyped-call]
        if self.fabric.world_size > 1:
            average_gradients(self.network.parameters(), self.fabric.world_size)
        self.optimiser.step()
        if self.average:
            self.average.update()
        return loss.detach()

    def _loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        loss = self.objective(outputs.float(), batch.groups, batch.ignore)
        return loss + self.teacher.loss(outputs.float(), batch.pixels) if self.teacher else loss

    def _validate(
        self, validation: Validation, log: Log, epoch: int, descriptor: Descriptor, origin: Origin
    ) -> None:
        """Judge the network after an epoch, and keep its weights if none were better."""
        ap = validation.average_precision(self.kept)
        log.validated(epoch, ap)
        if ap > self.place.best:
            self.place = TrainState(self.place.epoch, 0, ap)
            judged = origin.model_copy(update={"figures": {f"held-out AP % after epoch {epoch}": round(100 * ap, 2)}})
            registry.save(descriptor, self.run / BEST, self.recipe.architecture, judged)
        self._report(log, epoch + 1)
        log.restart_clock()

    def _report(self, log: Log, epochs: float) -> None:
        self.progress(Status(epochs / self.recipe.epochs, log.loss, log.ap, log.speed))

    @contextmanager
    def _log(self) -> Iterator[Log]:
        """The record of the run; that of a rank which is not the chief leads nowhere."""
        with tempfile.TemporaryDirectory() as nowhere:
            folder = self.run if self.fabric.is_global_zero else Path(nowhere)
            with Log(folder, self.place.epoch, self.place.batch) as log:
                yield log

    def _keep(self, log: Log, place: TrainState) -> None:
        """Write a checkpoint if the last is old."""
        if self.fabric.is_global_zero and time.monotonic() - self.saved >= CHECKPOINT_SECONDS:
            log.flush()
            self._save(place)
            self.saved = time.monotonic()

    def _save(self, place: TrainState) -> None:
        save_checkpoint(self.run / CHECKPOINT, self.network, self.optimiser, place, self.average)

    def _failed(self, error: NotFiniteError, descriptor: Descriptor, origin: Origin) -> DoapError:
        """Keep the last good weights and the ids of the batch; the error in one line."""
        if self.fabric.is_global_zero:
            self.kept.load_state_dict(self.good)
            registry.save(descriptor, self.run / LAST_GOOD, self.recipe.architecture, origin)
            ids = self.batches.indices(error.epoch, error.batch).tolist()
            about = {"epoch": error.epoch, "batch": error.batch, "what": error.what, "items": ids}
            write_text(self.run / FAILURE, json.dumps(about) + "\n")
        return DoapError(
            f"{self.run}: {error.what} at batch {error.batch} of epoch {error.epoch} (its items are in {FAILURE}, the "
            f"last good weights in {LAST_GOOD}); lower lr"
        )

    def _mine(self, data: Data, sources: Sources) -> MinedLabels:
        """The labels mined from the data: once a run, by the chief."""
        path = self.run / MINED
        if self.fabric.is_global_zero and not path.exists():
            tell, done = self._tell("mining labels"), 0

            def more(count: int) -> None:
                nonlocal done
                done += count
                tell(done / len(data))

            mine_labels(data, self._take(data, sources), seed=self.recipe.seed, progress=more).save(path, data)
        self.fabric.barrier()
        return MinedLabels.load(path, data)

    def _take(self, data: Data, sources: Sources) -> Callable[[Ids], Tensor]:
        """How to get patches on the device as they are in the set; those of frames are cut undisturbed."""
        if isinstance(data, PatchSet):
            return lambda indices: send(data.take(indices), self.fabric.device)
        source = sources.load(data, self.fabric.device, SIDE)
        assert isinstance(source, ResidentFrames)
        return source.plain

    def _tell(self, doing: str) -> Callable[[float], None]:
        """What to call with the share that is done of something before the training begins."""
        return lambda done: self.progress(Status(done, doing=doing))

    def _weights(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.kept.state_dict().items()}


def make_optimiser(network: PatchNetwork, recipe: Recipe) -> torch.optim.SGD:
    """SGD as in the paper: the layer that predicts the Spatial Transformer's transformation learns more slowly."""
    slow = prediction_parameters(network)
    others = [p for p in network.parameters() if not any(p is s for s in slow)]
    groups = [{"params": others, "lr_divisor": 1}, *([{"params": slow, "lr_divisor": recipe.transformer_lr_divisor}] if slow else [])]
    return torch.optim.SGD(groups, recipe.initial_lr(), recipe.momentum, weight_decay=recipe.weight_decay)


def make_reproducible(device: torch.device) -> None:
    """Let the same numbers come out of the same training, from one process to the next."""
    # Saying how many threads there are, though nothing changes, keeps MKL from using fewer when the machine is
    # busy: sums would be split, and round, otherwise.
    torch.set_num_threads(torch.get_num_threads())
    if device.type == "cpu":
        keep_freed_memory()
    else:
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True
