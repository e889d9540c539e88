"""Validation: exact AP on scenes that are not trained on."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.datasets.batches.sampling import GroupItems
from doap.datasets.official.training_set import parts_of
from doap.datasets.sets.frame_set import FrameSet
from doap.errors import DoapError
from doap.networks.descriptor import Descriptor, to_input
from doap.networks.network import PatchNetwork
from doap.objectives.average_precision import euclidean_distances, hamming_distances
from doap.objectives.baselines.pairs import related_patches
from doap.objectives.exact import exact_average_precisions
from doap.training.batches import BatchLoader, PatchBatch, check_batches
from doap.training.data_cache import Data, DataCache
from doap.training.recipes.reading import setting_keys
from doap.training.recipes.recipe import Recipe
from doap.types import Kind

BATCHES = 4
MAX_BATCH_SIZE = 2048
CHUNK_SIZE = 512
OTHER_SET = "use another set"  # advice in errors


def check_validation_folder(training: Sequence[Path], validation: Path) -> None:
    """Check that a set is not validated on itself.

    Raises:
        DoapError: If the validation set is one of the training sets.
    """
    if validation.resolve() in {path.resolve() for path in training}:
        raise DoapError(f"{validation}: would be both trained and validated on; split it first, with doap data split")


def check_disjoint(training: Data, validation: Data, name: str) -> None:
    """Check that no sequence is both trained and validated on: one of the same name with the same first item.

    Args:
        training: Training set.
        validation: Validation set; sets of another kind are not compared.
        name: Name of the validation set, for the error.

    Raises:
        DoapError: If a sequence is in both.
    """
    if isinstance(training, FrameSet) != isinstance(validation, FrameSet):
        return
    others = _first_items(validation)
    for part, _ in parts_of(training, ()):  # a union renames sequences and resizes patches
        items = _first_items(part)
        for sequence in sorted(items.keys() & others.keys()):
            content, other = _read_item(part, items[sequence]), _read_item(validation, others[sequence])
            if np.array_equal(content, other):
                raise DoapError(
                    f"{name}: its sequence {sequence} would be both trained and validated on; train on the other part "
                    "of doap data split"
                )


def _first_items(data: Data) -> dict[str, int]:
    """Return the first item of each sequence, by name; none if sequences have no names."""
    if not data.sequence_names:
        return {}
    numbers, items = np.unique(data.sequences, return_index=True)
    return {data.sequence_names[number]: int(item) for number, item in zip(numbers, items, strict=True)}


def _read_item(data: Data, item: int) -> NDArray[np.uint8]:
    """Return the pixels of a patch, or the file of the photo of a frame."""
    content: NDArray[np.uint8]
    content = data.encoded_photos[data.photos[item]] if isinstance(data, FrameSet) else data.take([item])[0]
    return content


def check_val_fraction(recipe: Recipe, settings: Iterable[str]) -> None:
    """Check that no scenes are asked for by an override of the recipe where another set validates.

    A fraction of the recipe itself has no effect there: recipes are for trainings with and without another set.

    Raises:
        DoapError: If a `key=value` text sets a fraction above 0.
    """
    if recipe.val_fraction and "val_fraction" in setting_keys(settings):
        raise DoapError(f"--set val_fraction={recipe.val_fraction:g}: has no effect beside --val; leave it out")


class Validation:
    """Exact AP on four batches of 2,048 patches, or as many as the set allows, sampled once.

    The batches are sampled as the recipe samples those of the training, but without its source weights.

    Args:
        data: Scenes that are not trained on.
        recipe: How to sample.
        device: Device to compute on.
        size: Side of the patches that the network reads.
        cache: Cache that may hold the loaded set.

    Raises:
        DoapError: If the set is too small for a batch.
    """

    def __init__(
        self, data: Data, recipe: Recipe, device: torch.device, size: int, cache: DataCache | None = None
    ) -> None:
        loader = BatchLoader(data, check_validation(data, recipe, OTHER_SET), device, size, cache=cache)
        self._batches: list[PatchBatch] = []
        epoch = 0
        while len(self._batches) < BATCHES:
            missing = range(BATCHES - len(self._batches))
            batches = [batch for batch, _ in zip(loader.batches(epoch), missing, strict=False)]
            self._batches += batches
            epoch += 1
        self._kind = recipe.kind

    def average_precision(self, network: PatchNetwork) -> float:
        """Return the mean exact AP of all queries with a match; leaves the network in evaluation mode."""
        network.eval()
        with torch.inference_mode():
            values = torch.cat([self._precisions(network, batch) for batch in self._batches])
        return float(values[values.isfinite()].mean())

    def _precisions(self, network: PatchNetwork, batch: PatchBatch) -> Tensor:
        pixels = to_input(batch.pixels, network)
        outputs = torch.cat([network(chunk).float() for chunk in torch.split(pixels, CHUNK_SIZE)])
        if outputs.device.type != "cuda":  # Apple's GPUs have no float64
            outputs = outputs.cpu()
        groups = batch.groups.to(outputs.device)
        same = groups[:, None] == groups
        others = ~torch.eye(len(groups), dtype=torch.bool, device=groups.device)
        listed = others & (same | ~related_patches(groups, batch.ignore))
        if self._kind == "real":
            unit = torch.nn.functional.normalize(outputs, dim=1)
            distances = euclidean_distances(unit, unit)
        else:
            distances = hamming_distances((outputs > 0).float() * 2 - 1).round()
        return exact_average_precisions(distances, same, listed)


def check_validation(data: Data, recipe: Recipe, advice: str) -> Recipe:
    """Check that a set can validate the trainings of a recipe, and return the recipe of its batches.

    Args:
        data: Scenes that are not trained on.
        recipe: Recipe of the trainings.
        advice: How to do without this set, for errors.

    Raises:
        DoapError: If the recipe does not fit the set, or the set is too small for a batch.
    """
    try:
        batch_size = min(MAX_BATCH_SIZE, _largest_batch(data, recipe))
        sampling = recipe.model_copy(update={"batch_size": batch_size, "source_weights": None})
        sampler = check_batches(data, sampling)
    except DoapError as error:
        raise DoapError(f"validation: {error}; or {advice}") from None
    if not sampler.count(0):
        raise DoapError(f"the validation set is too small for a batch; lower batch_size, or {advice}")
    return sampling


class CommonValidation:
    """Validation of models of different trainings on the same batches, so that they compare.

    Patches of a frame set are cut at the extent of each model.

    Args:
        data: Scenes that none of the models is trained on.
        recipe: How to sample, whatever the recipes of the models.
        device: Device to compute on.
        cache: Cache that may hold the loaded set.

    Raises:
        DoapError: If the set is too small for a batch, or the recipe does not fit it.
    """

    def __init__(self, data: Data, recipe: Recipe, device: str, cache: DataCache) -> None:
        check_validation(data, recipe, OTHER_SET)
        self._data, self._recipe, self._device, self._cache = data, recipe, torch.device(device), cache
        self._validations: dict[tuple[Kind, int, float], Validation] = {}

    def average_precision(self, model: Descriptor) -> float:
        """Return the mean exact AP of a model, which must be on the device."""
        key = model.kind, model.input_size, model.extent
        if key not in self._validations:
            extent = model.extent if self._data.is_jittered else None
            recipe = self._recipe.model_copy(update={"kind": model.kind, "extent": extent})
            self._validations[key] = Validation(self._data, recipe, self._device, model.input_size, self._cache)
        return self._validations[key].average_precision(model.network)


def _largest_batch(data: Data, recipe: Recipe) -> int:
    """Return the largest batch size that a set allows."""
    if data.is_jittered and recipe.views_per_group is None:
        return MAX_BATCH_SIZE  # refused by check_batches, whatever the size
    items = GroupItems(data, recipe.views_per_group)
    if recipe.sampling == "pools" and recipe.views_per_group:
        _, groups = np.unique(data.group_sequences[items.usable], return_counts=True)
        per_sequence = recipe.groups_per_sequence
        return int((groups >= per_sequence).sum()) * per_sequence * recipe.views_per_group
    return int(items.counts[items.usable].sum())
