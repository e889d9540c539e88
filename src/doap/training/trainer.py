"""The training loop. `run_folder` lists the files that a run leaves."""

import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from doap import onednn
from doap.datasets.label_mining.mining import MinedLabels, mine_labels
from doap.datasets.official.training_set import check_split
from doap.errors import DoapError
from doap.extents import check_extent
from doap.files import write_text
from doap.locking import only_writer
from doap.networks.architecture import build_network, shapes_of
from doap.networks.card import Origin, TrainingSet, inherit_origin
from doap.networks.descriptor import Descriptor, check_device, to_input
from doap.networks.feature_maps import FeatureMapNetwork
from doap.networks.network import PatchNetwork
from doap.networks.registry import find_card, save
from doap.networks.spatial_transformer import prediction_parameters
from doap.objectives import backward_in_chunks
from doap.training.averaging import MovingAverage
from doap.training.batches import BatchLoader, PatchBatch, check_batches
from doap.training.checkpoint import (
    TrainState,
    check_initial_weights,
    find_teachers_sets,
    load_checkpoint,
    load_initial_weights,
    previous_checkpoint,
    recover_checkpoint,
    save_checkpoint,
)
from doap.training.data_cache import Data, DataCache
from doap.training.distributed import (
    AutocastNetwork,
    SyncDropout,
    average_gradients,
    is_bfloat16,
    is_rank_zero,
    make_fabric,
    make_reproducible,
    synchronise_layers,
)
from doap.training.log import Log, NotFiniteError, Status, StatusCallback, naming_run
from doap.training.objective import FEATURE_MAP_OBJECTIVES, make_objective
from doap.training.recipes.recipe import Recipe
from doap.training.run_folder import (
    BEST,
    CHECKPOINT,
    FAILURE,
    LAST_GOOD,
    MINED,
    WEIGHTS,
    DataSpec,
    check_mined,
    describe_run,
    identify_weights,
    list_training_sets,
    remove_failure,
    start_run,
)
from doap.training.teacher import Teacher
from doap.training.validation import Validation, check_validation
from doap.types import Progress

if TYPE_CHECKING:
    from lightning.fabric import Fabric

EpochCallback = Callable[[int, Descriptor], None]
"""Callback after an epoch: `callback(epoch, model)`."""

CHECKPOINT_SECONDS = 30.0
MAX_PARAMETERS = 10**9
STEPS_PER_READ = 20  # losses read at once from a GPU, which would have to wait for each otherwise

IN_MEMORY = DataSpec()


def train(
    recipe: Recipe,
    data: Data,
    run: Path,
    name: str = "doap",
    source: DataSpec = IN_MEMORY,
    device: str = "cpu",
    devices: int = 1,
    validation: Data | None = None,
    progress: StatusCallback = lambda _status: None,
    cache: DataCache | None = None,
    mined: Path | None = None,
    on_epoch: EpochCallback = lambda _epoch, _model: None,
) -> Descriptor:
    """Train a descriptor and write everything to a run folder.

    Args:
        recipe: What to train, and how.
        data: Training set.
        run: Run folder. If it holds an unfinished run of the same recipe and data, that run is resumed from its last
            checkpoint, to the same weights, bit for bit, as if it had never stopped.
        name: Name of the model on its card.
        source: Origin of the data, for the record.
        device: "cpu" or "cuda".
        devices: Number of processes, each with its own device. More than one needs a program that can be started
            again: a script or a command, not a notebook.
        validation: Set for the exact AP after every epoch; by default the fraction of the scenes of `data` given by
            the recipe's `val_fraction`, and none if that is 0.
        progress: Callback, called as progress(status).
        cache: Cache of loaded sets; trainings that share one load a set once.
        mined: File of mined labels of `data` for a recipe with label mining, copied to the run folder; by default they
            are mined. Called again for an unfinished run, the copy is used.
        on_epoch: Callback, called as on_epoch(epoch, model) after each epoch and its validation, with the model so far
            in eval mode.

    Raises:
        DoapError: If the run folder holds another training, or another process trains in it; the set holds sequences
            outside the split of the recipe; the mined labels are of another set or other settings; the initial weights
            are of another architecture; or a loss or the weights are not finite.
    """
    check_device(device)
    check_split(data, recipe.split, source.folders)
    precision = "bf16" if is_bfloat16(recipe, device) else "fp32"
    models = {key: identify_weights(key, getattr(recipe, key)) for key in ("teacher", "initial_weights")}
    info = describe_run(data, source, device, devices, precision, **models, validation=validation)
    training_sets = list_training_sets(data, source, recipe.split)
    inherited = [*check_initial_weights(recipe), *find_teachers_sets(recipe)]
    training_sets += [other for index, other in enumerate(inherited) if other not in training_sets + inherited[:index]]
    fabric = make_fabric(recipe, device, devices)
    if is_rank_zero() and mined:
        check_mined(mined, recipe, data, validation)
    cache = cache or DataCache()
    data, validation = check_training(recipe, data, validation, cache)
    origin = _describe_origin(recipe, source, training_sets, info)
    with ExitStack() as stack:
        if is_rank_zero():
            stack.enter_context(only_writer(run, inside=True))
            start_run(run, recipe, info, mined)
            recover_checkpoint(run / CHECKPOINT)
        fabric.launch()
        fabric.barrier()
        make_reproducible(fabric.device)
        trainer = Trainer(recipe, data, run, fabric, progress, cache, on_epoch)
        validate: Validation | None = None
        if validation is not None and fabric.is_global_zero:
            validate = Validation(validation, recipe, fabric.device, trainer.network.input_size, cache)
        stack.enter_context(onednn.keep_enabled())  # the recipe can ask for bfloat16 on a CPU without it
        extent = recipe.extent or data.extent
        descriptor = Descriptor(trainer.result, recipe.kind, extent, name, prefixes=recipe.lengths[:-1])
        return trainer.fit(descriptor, origin, validate)


def check_training(recipe: Recipe, data: Data, validation: Data | None, cache: DataCache) -> tuple[Data, Data | None]:
    """Check that a recipe can be trained on a set, before anything is written; the arguments are those of `train`.

    Returns:
        The parts to train on and to validate on.

    Raises:
        DoapError: If the recipe does not fit one of the sets, or its network is too large.
    """
    check_extent(data.extent, "the extent of the set")
    parameters = sum(math.prod(shape) for shape in shapes_of(recipe.architecture).values())
    if parameters > MAX_PARAMETERS:
        raise DoapError(
            f"width={recipe.width} and dimensions={recipe.dimensions} give a network of {parameters:,} parameters; "
            f"lower them, to at most {MAX_PARAMETERS:,} parameters"
        )
    is_given = validation is not None
    if recipe.val_fraction and validation is None:
        data, validation = cache.split(data, recipe)
    check_batches(data, recipe)
    if validation is not None:
        check_validation(validation, recipe, "leave out --val" if is_given else "set val_fraction=0")
    return data, validation


def _describe_origin(
    recipe: Recipe, source: DataSpec, training_sets: list[TrainingSet], info: dict[str, Any]
) -> Origin:
    """Return the provenance of the model of a training, with that of the model it starts from, if any.

    Args:
        recipe: Recipe of the training.
        source: Origin of the data.
        training_sets: What the model depends on, the training sets of the initial weights included.
        info: Content of run.json.
    """
    origin = Origin(data=", ".join(source.data), training_sets=training_sets, recipe=recipe.model_dump(), notes=info)
    base = None if recipe.initial_weights is None else find_card(recipe.initial_weights)
    return inherit_origin(base.origin, origin) if base else origin


class Trainer:
    """State of a training: network, optimiser and position.

    Attributes:
        network: Network under training.
        result: Network that is evaluated and saved: the network itself, or the moving average of its weights.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: Data,
        run: Path,
        fabric: "Fabric",
        progress: StatusCallback = lambda _status: None,
        cache: DataCache | None = None,
        on_epoch: EpochCallback = lambda _epoch, _model: None,
    ) -> None:
        self.recipe, self.run, self.fabric, self.progress, self.on_epoch = recipe, run, fabric, progress, on_epoch
        torch.manual_seed(recipe.seed)
        self.network = build_network(recipe.architecture, recipe.dropout)
        if recipe.initial_weights is not None:
            load_initial_weights(self.network, recipe.initial_weights)
        self.network.to(fabric.device, memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in stubs
        if fabric.world_size > 1 and not recipe.chunk:  # ranks may have different numbers of chunks
            synchronise_layers(self.network, fabric.device)
        self.average = MovingAverage(self.network, recipe.ema_decay) if recipe.ema_decay else None
        self.result = self.average.network if self.average else self.network
        self.map_network = FeatureMapNetwork(self.network) if recipe.objective in FEATURE_MAP_OBJECTIVES else None
        network = self.map_network or self.network
        self.forward = AutocastNetwork(torch.compile(network) if recipe.compile else network, fabric)
        self.objective = make_objective(recipe, fabric.world_size)
        self.teacher = Teacher(recipe, fabric) if recipe.teachers else None
        self.optimiser = make_optimiser(self.network, recipe)
        cache = cache or DataCache()
        self.loader = BatchLoader(
            data,
            recipe,
            fabric.device,
            self.network.input_size,
            mined=self._mine_labels(data, cache) if recipe.label_mining else None,
            rank=fabric.global_rank,
            ranks=fabric.world_size,
            progress=self._preparation("loading the set"),
            cache=cache,
            teachers=self.teacher.inputs if self.teacher else (),
        )
        self.state = TrainState()
        if (run / CHECKPOINT).exists():
            self.state = load_checkpoint(run / CHECKPOINT, self.network, self.optimiser, self.average)
        self.last_good = self._copy_weights()
        self.saved_at = time.monotonic()

    def fit(self, descriptor: Descriptor, origin: Origin, validation: Validation | None) -> Descriptor:
        """Train the remaining epochs, validate after each, and write the weights."""
        with self._open_log() as log:
            try:
                for epoch in range(self.state.epoch, self.recipe.epochs):
                    self._train_epoch(epoch, log)
                    self.state = TrainState(epoch + 1, 0, self.state.best)
                    if validation is not None:
                        self._validate(validation, log, epoch, descriptor, origin)
                    self.on_epoch(epoch, descriptor.eval())
            except NotFiniteError as error:
                raise self._write_failure(error, descriptor, origin) from None
        if self.fabric.is_global_zero:
            self._save_checkpoint(self.state)
            save(descriptor, self.run / WEIGHTS, self.recipe.architecture, origin)
            previous_checkpoint(self.run / CHECKPOINT).unlink(missing_ok=True)
            remove_failure(self.run)
        self.fabric.barrier()
        return descriptor.eval()

    def _train_epoch(self, epoch: int, log: Log) -> None:
        """Train on the remaining batches of an epoch."""
        steps_per_read = 1 if self.fabric.device.type == "cpu" else STEPS_PER_READ
        count, first = self.loader.count(epoch), self.state.batch
        self.network.train()
        for number, batch in enumerate(self.loader.batches(epoch, first), first):
            lr = self.recipe.lr_at(epoch, number / count)
            log.add_step(epoch, number, lr, self.step(batch, lr), batch.total)
            if log.pending >= steps_per_read or number + 1 == count:
                log.read_pending([value for value in self.network.state_dict().values() if value.is_floating_point()])
                self.last_good = self._copy_weights()
                self._report(log, epoch + (number + 1) / count)
                self._save_if_due(log, TrainState(epoch, number + 1, self.state.best))

    def step(self, batch: PatchBatch, lr: float) -> Tensor:
        """Take one step of SGD; return the loss, which a GPU may still be computing."""
        torch.manual_seed(batch.seed)
        for layer in self.network.modules():
            if isinstance(layer, SyncDropout):
                layer.rows, layer.total = batch.rows, batch.total
        for group in self.optimiser.param_groups:
            group["lr"] = lr / group["lr_divisor"]
        self.optimiser.zero_grad()
        inputs = to_input(batch.pixels, self.network)
        if self.recipe.chunk and len(inputs) > self.recipe.chunk:
            chunks = torch.tensor_split(inputs, -(-len(inputs) // self.recipe.chunk))  # of about equal size
            loss = backward_in_chunks(self.forward, chunks, lambda outputs: self._loss(outputs, batch))
        else:
            loss = self._loss(self.forward(inputs), batch)
            loss.backward()  # type: ignore[no-untyped-call]
        if self.fabric.world_size > 1:
            average_gradients(self.network.parameters(), self.fabric.world_size)
        self.optimiser.step()
        if self.average:
            self.average.update()
        return loss.detach()

    def _loss(self, outputs: Tensor, batch: PatchBatch) -> Tensor:
        outputs = outputs.float()
        if self.map_network:
            outputs, maps = self.map_network.split(outputs)
            loss = self.objective(outputs, batch.groups, batch.ignore, maps)
        else:
            loss = self.objective(outputs, batch.groups, batch.ignore)
        return loss + self.teacher.loss(outputs, batch.teacher_pixels) if self.teacher else loss

    def _validate(self, validation: Validation, log: Log, epoch: int, descriptor: Descriptor, origin: Origin) -> None:
        """Validate after an epoch and save the weights if they are the best so far."""
        ap = validation.average_precision(self.result)
        log.add_validation(epoch, ap)
        if ap > self.state.best:
            self.state = TrainState(self.state.epoch, 0, ap)
            figures = {f"validation AP % after epoch {epoch}": round(100 * ap, 2)}
            save(descriptor, self.run / BEST, self.recipe.architecture, origin.model_copy(update={"figures": figures}))
        self._report(log, epoch + 1)
        log.restart_clock()

    def _report(self, log: Log, epochs: float) -> None:
        self.progress(Status(epochs / self.recipe.epochs, log.loss, log.ap, log.speed))

    def _preparation(self, name: str) -> Progress:
        """Return a callback that reports the progress of a preparation."""
        return lambda done, total: self.progress(Status(done / total, preparation=name))

    @contextmanager
    def _open_log(self) -> Iterator[Log]:
        """Open the log of the run; ranks other than zero write theirs to a temporary folder."""
        with tempfile.TemporaryDirectory() as temporary:
            folder = self.run if self.fabric.is_global_zero else Path(temporary)
            with naming_run(folder), Log(folder, self.state.epoch, self.state.batch) as log:
                yield log

    def _save_if_due(self, log: Log, state: TrainState) -> None:
        if self.fabric.is_global_zero and time.monotonic() - self.saved_at >= CHECKPOINT_SECONDS:
            log.flush()
            self._save_checkpoint(state)
            self.saved_at = time.monotonic()

    def _save_checkpoint(self, state: TrainState) -> None:
        save_checkpoint(self.run / CHECKPOINT, self.network, self.optimiser, state, self.average)

    def _write_failure(self, error: NotFiniteError, descriptor: Descriptor, origin: Origin) -> DoapError:
        """Save the last good weights and the items of the batch; return the error to raise."""
        if self.fabric.is_global_zero:
            self.result.load_state_dict(self.last_good)
            save(descriptor, self.run / LAST_GOOD, self.recipe.architecture, origin)
            items = self.loader.indices(error.epoch, error.batch).tolist()
            failure = {"epoch": error.epoch, "batch": error.batch, "what": error.message, "items": items}
            write_text(self.run / FAILURE, json.dumps(failure) + "\n")
        return DoapError(
            f"{self.run}: {error.message} at batch {error.batch} of epoch {error.epoch} (its items are in {FAILURE}, "
            f"the last good weights in {LAST_GOOD}); lower lr"
        )

    def _mine_labels(self, data: Data, cache: DataCache) -> MinedLabels:
        """Mine labels once per run, on rank zero, unless they were given."""
        path = self.run / MINED
        if self.fabric.is_global_zero and not path.exists():
            patches, progress = cache.load_plain(data, self.fabric.device), self._preparation("mining labels")
            mine_labels(data, patches, self.recipe.mining, progress).save(path, data)
        self.fabric.barrier()
        return MinedLabels.load(path, data, self.recipe.mining)

    def _copy_weights(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.result.state_dict().items()}


def make_optimiser(network: PatchNetwork, recipe: Recipe) -> torch.optim.SGD:
    """Return SGD as in the paper, with a lower learning rate for the Spatial Transformer's prediction layer."""
    slow = prediction_parameters(network)
    others = [p for p in network.parameters() if not any(p is s for s in slow)]
    groups: list[dict[str, Any]] = [{"params": others, "lr_divisor": 1}]
    if slow:
        groups.append({"params": slow, "lr_divisor": recipe.transformer_lr_divisor})
    return torch.optim.SGD(groups, recipe.initial_lr(), recipe.momentum, weight_decay=recipe.weight_decay)
