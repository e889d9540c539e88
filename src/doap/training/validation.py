"""Exact AP on sequences that are never trained on, while a training runs."""

import numpy as np
import torch
from torch import Tensor

from doap.errors import DoapError
from doap.networks.descriptor import to_input
from doap.networks.network import PatchNetwork
from doap.objectives.average_precision import euclidean_distances, hamming_distances
from doap.objectives.exact import exact_average_precisions
from doap.objectives.pairs import related_patches
from doap.patches.frameset import FrameSet
from doap.patches.patchset import PatchSet
from doap.patches.sampling import GroupItems
from doap.training.batches import Batch, Batches
from doap.training.recipe import Recipe

LISTS = 4
LIST_SIZE = 2048
CHUNK = 512


def split_sequences(data: PatchSet | FrameSet, recipe: Recipe) -> tuple[PatchSet | FrameSet, PatchSet | FrameSet]:
    """What to train on, and what to hold out: whole sequences, drawn by the recipe's seed.

    Raises:
        DoapError: if there are not two sequences.
    """
    names = np.unique(data.sequences)
    if len(names) < 2:
        raise DoapError("held_out keeps whole sequences for validation, but this set has only one; set held_out=0")
    count = min(max(1, round(recipe.held_out * len(names))), len(names) - 1)
    chosen = np.random.default_rng(recipe.seed).permutation(names)[:count]
    held_out = np.isin(data.sequences, chosen)
    return data.part(~held_out), data.part(held_out)


class Validation:
    """Lists of 2,048 patches, or as long as what is held out allows, drawn once as the recipe draws its own.

    Args:
        data: sequences that are not trained on.
        recipe: how lists are drawn.
        device: where to work.
        size: side of the patches that the network reads.
    """

    def __init__(self, data: PatchSet | FrameSet, recipe: Recipe, device: torch.device, size: int) -> None:
        drawn = recipe.model_copy(update={"list_size": min(LIST_SIZE, _longest(data, recipe))})
        batches = Batches(data, drawn, device, size)
        self._lists: list[Batch] = []
        epoch = 0
        while len(self._lists) < LISTS:
            found = [batch for batch, _ in zip(batches.draw(epoch), range(LISTS - len(self._lists)), strict=False)]
            if not found:
                raise DoapError("what is held out is too little for a list; hold out more, or lower list_size")
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


def _longest(data: PatchSet | FrameSet, recipe: Recipe) -> int:
    """How many patches a list can have at most."""
    items = GroupItems(data, recipe.views)
    if recipe.sampling == "pools" and recipe.views:
        _, groups = np.unique(data.group_sequences[items.usable], return_counts=True)
        return int((groups >= recipe.per_pool).sum()) * recipe.per_pool * recipe.views
    return int(items.counts[items.usable].sum())
