"""A trained model that a student follows beside its objective."""

import hashlib
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from doap.errors import DoapError
from doap.networks import registry
from doap.networks.baselines import list_baselines
from doap.networks.descriptor import inference_batch_size, to_input
from doap.networks.inference import fold_normalisation
from doap.objectives import ImitationLoss, SimilarityLoss
from doap.objectives.distributed import gather_outputs
from doap.training.recipe import Recipe

if TYPE_CHECKING:
    from lightning.fabric import Fabric


def identify(recipe: Recipe) -> dict[str, str] | None:
    """Which weights a recipe's teacher has, for the record: its name or path, and their SHA-256.

    Raises:
        DoapError: if it cannot be loaded, or has none.
    """
    if recipe.teacher is None:
        return None
    if recipe.teacher in list_baselines():
        raise DoapError(f"teacher={recipe.teacher}: handcrafted, it has no weights; name a trained model")
    try:
        registry.load(recipe.teacher)  # one that cannot be loaded is better refused before there is a run
        content = registry.find_weights(recipe.teacher).read_bytes()
    except DoapError as error:
        raise DoapError(f"teacher={error}") from None
    return {"model": recipe.teacher, "sha256": hashlib.sha256(content).hexdigest()}


class Teacher:
    """Describes the patches of a list, in the precision of the training, and compares the student with itself.

    A student of its kind and dimensions imitates its descriptors; any other, its similarities.

    Args:
        model: name or path, as `doap.load` takes it.
        recipe: of the student.
        fabric: devices, processes and precision.
    """

    def __init__(self, model: str, recipe: Recipe, fabric: "Fabric") -> None:
        descriptor = registry.load(model, fabric.device)
        self._network = fold_normalisation(descriptor.network)
        self._network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in stubs
        self._fabric = fabric
        self._weight = recipe.distillation_weight
        alike = (recipe.kind, recipe.dimensions) == (descriptor.kind, descriptor.network.dimensions)
        self._compare = ImitationLoss(recipe.kind) if alike else SimilarityLoss(recipe.kind, descriptor.kind)

    def loss(self, outputs: Tensor, pixels: Tensor) -> Tensor:
        """How far the student is from it, weighted, a scalar; with several ranks, over the list that all hold together.

        Args:
            outputs: (m, d) float, raw activations of the student.
            pixels: (m, S, S) uint8, the patches they are of.
        """
        taught = self.describe(pixels)
        if self._fabric.world_size > 1:
            outputs, taught = gather_outputs(outputs), gather_outputs(taught)
        far: Tensor = self._compare(outputs, taught)
        return self._weight * far

    @torch.no_grad()
    def describe(self, pixels: Tensor) -> Tensor:
        """(m, S, S) uint8 to (m, D) raw activations."""
        parts = torch.split(pixels, inference_batch_size(pixels.device))
        size = self._network.input_size
        with self._fabric.autocast():
            taught = torch.cat([self._network(to_input(part, size)) for part in parts])
        return taught.float()
