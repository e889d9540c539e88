"""Exact AP on scenes that are never trained on, while a training runs."""

import numpy as np
import torch
from torch import Tensor

from doap.datasets.batches.sampling import GroupItems
from doap.errors import DoapError
from doap.networks.descriptor import Descriptor, to_input
from doap.networks.network import PatchNetwork
from doap.objectives.average_precision import euclidean_distances, hamming_distances
from doap.objectives.baselines.pairs import related_patches
from doap.objectives.exact import exact_average_precisions
from doap.training.batches import Batch, Batches
from doap.training.recipe import Recipe
from doap.training.sources import Data, Sources
from doap.types import Kind

LISTS = 4
LIST_SIZE = 2048
CHUNK = 512


class Validation:
    """Lists of 2,048 patches, or as long as what is held out allows, drawn once as the recipe draws its own.

    Of a frame set's sources they have what the set has: shares are a matter of training.

    Args:
        data: scenes that are not trained on.
        recipe: how lists are drawn.
        device: where to work.
        size: side of the patches that the network reads.
        sources: where the data may be loaded already.
    """

    def __init__(
        self, data: Data, recipe: Recipe, device: torch.device, size: int, sources: Sources | None = None
    ) -> None:
        drawn = recipe.model_copy(update={"batch_size": min(LIST_SIZE, _longest(data, recipe)), "source_weights": None})
        batches = Batches(data, drawn, device, size, sources=sources)
        self._lists: list[Batch] = []
        epoch = 0
        while len(self._lists) < LISTS:
            found = [batch for batch, _ in zip(batches.draw(epoch), range(LISTS - len(self._lists)), strict=False)]
            if not found:
                raise DoapError("what is held out is too little for a list; hold out more, or lower batch_size")
            self._lists += found
            epoch += 1
        self._kind = recipe.kind

    def average_precision(self, network: PatchNetwork) -> float:
        """Mean exact AP of all queries that have a match; the network is left in evaluation mode."""
        network.eval()
        with torch.inference_mode():
            values = torch.cat([self._precisions(network, batch) for batch in self._lists])
        return float(values[values.isfinite()].mean())

    def _precisions(self, network: PatchNetwork, batch: Batch) -> Tensor:
        pixels = to_input(batch.pixels, network.input_size)
        outputs = torch.cat([network(chunk).float() for chunk in torch.split(pixels, CHUNK)])
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


class CommonLists:
    """The same lists for models of different trainings, so that they compare; drawn once a kind and size of patches.

    Args:
        data: scenes that none of them is trained on.
        recipe: how lists are drawn, whatever the models' own recipes say.
        device: where to work.
        sources: where the data may be loaded already.
    """

    def __init__(self, data: Data, recipe: Recipe, device: str, sources: Sources) -> None:
        self._data, self._recipe, self._device, self._sources = data, recipe, torch.device(device), sources
        self._lists: dict[tuple[Kind, int], Validation] = {}

    def average_precision(self, model: Descriptor) -> float:
        """Mean exact AP of a model, which is on the device."""
        wanted = model.kind, model.input_size
        if wanted not in self._lists:
            drawn = self._recipe.model_copy(update={"kind": model.kind})
            self._lists[wanted] = Validation(self._data, drawn, self._device, model.input_size, self._sources)
        return self._lists[wanted].average_precision(model.network)


def _longest(data: Data, recipe: Recipe) -> int:
    """How many patches a list can have at most."""
    items = GroupItems(data, recipe.views_per_group)
    if recipe.sampling == "pools" and recipe.views_per_group:
        _, groups = np.unique(data.group_sequences[items.usable], return_counts=True)
        return int((groups >= recipe.groups_per_sequence).sum()) * recipe.groups_per_sequence * recipe.views_per_group
    return int(items.counts[items.usable].sum())
