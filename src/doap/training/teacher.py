"""Distillation: a trained model that a student imitates in addition to its objective."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from doap.networks import registry
from doap.networks.descriptor import inference_batch_size, to_input
from doap.networks.inference import fold_normalisation
from doap.objectives.distributed import gather_outputs
from doap.training.objective import make_distillation
from doap.training.recipe import Recipe

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class Teacher:
    """Distillation loss of a student, see `make_distillation`. The teacher computes in the precision of the training.

    Args:
        model: Name or path, as for `doap.load`.
        recipe: Recipe of the student.
        fabric: Devices, processes and precision.
    """

    def __init__(self, model: str, recipe: Recipe, fabric: "Fabric") -> None:
        descriptor = registry.load(model, fabric.device, fast=False)
        self._network = fold_normalisation(descriptor.network)
        self._network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in stubs
        self._fabric = fabric
        self._weight = recipe.distillation_weight
        self._compare = make_distillation(recipe, descriptor.kind, descriptor.network.dimensions)

    def loss(self, outputs: Tensor, pixels: Tensor) -> Tensor:
        """Return the weighted distillation loss, a scalar; with several ranks, over the batch of all ranks.

        Args:
            outputs: (m, d) float, raw activations of the student.
            pixels: (m, S, S) uint8, the patches.
        """
        targets = self.describe(pixels)
        if self._fabric.world_size > 1:
            outputs, targets = gather_outputs(outputs), gather_outputs(targets)
        loss: Tensor = self._compare(outputs, targets)
        return self._weight * loss

    @torch.no_grad()
    def describe(self, pixels: Tensor) -> Tensor:
        """Return the teacher's raw activations, (m, D), of patches, (m, S, S) uint8."""
        chunks = torch.split(pixels, inference_batch_size(self._network, pixels.device))
        size = self._network.input_size
        with self._fabric.autocast():
            outputs = torch.cat([self._network(to_input(chunk, size)) for chunk in chunks])
        return outputs.float()
