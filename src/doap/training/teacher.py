"""Distillation: trained models that a student imitates in addition to its objective."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from doap.networks import registry
from doap.networks.descriptor import Descriptor, inference_batch_size, to_input
from doap.networks.inference import fold_normalisation
from doap.objectives.distillation import teacher_descriptors
from doap.objectives.distributed import gather_outputs
from doap.training.batches import TeacherInput
from doap.training.objective import make_distillation
from doap.training.recipes.recipe import Recipe

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class Teacher:
    """Distillation loss of a student, see `make_distillation`. The teacher computes in the precision of the training.

    Several models are an ensemble. Its descriptor is the concatenation of theirs, scaled so that the similarity of two
    patches is the mean of the similarities by each model.

    Args:
        recipe: Recipe of the student, with one or more teachers.
        fabric: Devices, processes and precision.

    Attributes:
        inputs: What each model reads.
    """

    def __init__(self, recipe: Recipe, fabric: "Fabric") -> None:
        self._models = [_load_teacher(model, fabric.device) for model in recipe.teachers]
        self._fabric = fabric
        self._weight = recipe.distillation_weight
        if len(self._models) == 1:
            (model,) = self._models
            self._compare = make_distillation(recipe, model.kind, model.network.dimensions)
        else:
            self._compare = make_distillation(recipe, "real", None)
        self.inputs = [
            TeacherInput(model.input_size, model.extent, model.network.surroundings) for model in self._models
        ]

    def loss(self, outputs: Tensor, pixels: Sequence[Tensor]) -> Tensor:
        """Return the weighted distillation loss, a scalar; with several ranks, over the batch of all ranks.

        Args:
            outputs: (m, d) float, raw activations of the student.
            pixels: (m, S, S) uint8 per model, the patches.
        """
        targets = self.describe(pixels)
        if self._fabric.world_size > 1:
            outputs, targets = gather_outputs(outputs), gather_outputs(targets)
        loss: Tensor = self._compare(outputs, targets)
        return self._weight * loss

    @torch.no_grad()
    def describe(self, pixels: Sequence[Tensor]) -> Tensor:
        """Return the raw activations of one model, or the descriptors of an ensemble, (m, D).

        Args:
            pixels: (m, S, S) uint8 per model, the patches.
        """
        outputs = [self._activations(model, patches) for model, patches in zip(self._models, pixels, strict=True)]
        if len(outputs) == 1:
            return outputs[0]
        pairs = zip(outputs, self._models, strict=True)
        return torch.cat([teacher_descriptors(values, model.kind) for values, model in pairs], 1)

    def _activations(self, model: Descriptor, pixels: Tensor) -> Tensor:
        """Return the raw activations, (m, D), of a model."""
        chunks = torch.split(pixels, inference_batch_size(model.network, pixels.device))
        with self._fabric.autocast():
            outputs = torch.cat([model.network(to_input(chunk, model.network)) for chunk in chunks])
        return outputs.float()


def _load_teacher(name_or_path: str, device: torch.device) -> Descriptor:
    model = registry.load(name_or_path, device, fast=False)
    fold_normalisation(model.network)
    model.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in stubs
    return model
