"""Trainings of nested descriptors: the loss of a step, and what is recorded."""

from pathlib import Path

import pytest
import torch

from doap import PatchSet, Recipe, load
from doap.networks.architecture import build_network
from doap.networks.card import read_card
from doap.objectives import AveragePrecisionLoss, ImitationLoss, SimilarityLoss
from doap.training.batches import BatchLoader
from doap.training.log import read_losses
from doap.training.trainer import train
from doap.types import Kind
from support.trainings import SMALL

NESTED = SMALL.model_copy(update={"dimensions": 32, "prefixes": [16, 8], "dropout": 0.0, "epochs": 1})


def first_loss(recipe: Recipe, noise: PatchSet, chunks: int) -> float:
    """Return the loss of the first batch, from its definition."""
    batch = next(BatchLoader(noise, recipe, "cpu", 32).batches(0))
    torch.manual_seed(recipe.seed)
    network = build_network(recipe.architecture).train()
    inputs = batch.pixels[:, None].float()
    objective = AveragePrecisionLoss(recipe.kind, recipe.bins)
    with torch.no_grad():
        outputs = torch.cat([network(part) for part in torch.tensor_split(inputs, chunks)])
        losses = [objective(outputs[:, :k], batch.groups, batch.ignore) for k in (8, 16, 32)]
        for model in recipe.teachers:
            teacher = load(model, fast=False)
            targets = teacher.network(inputs)
            similarity = SimilarityLoss(recipe.kind, teacher.kind)
            is_same = (teacher.kind, teacher.network.dimensions) == (recipe.kind, recipe.dimensions)
            whole = ImitationLoss(recipe.kind) if is_same else similarity
            taught = [*(similarity(outputs[:, :k], targets) for k in (8, 16)), whole(outputs, targets)]
            losses = [loss + recipe.distillation_weight * term for loss, term in zip(losses, taught, strict=True)]
    return float(torch.stack(losses).mean())


@pytest.mark.parametrize("kind", ["real", "binary"])
@pytest.mark.parametrize("chunk", [None, 48])
def test_the_loss_is_the_mean_over_all_lengths(kind: Kind, chunk: int | None, noise: PatchSet, tmp_path: Path) -> None:
    recipe = NESTED.model_copy(update={"kind": kind, "chunk": chunk})
    train(recipe, noise, tmp_path / "run")
    expected = first_loss(recipe, noise, 3 if chunk else 1)
    assert read_losses(tmp_path / "run")[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["doap-demo-128", "taught"])
def test_prefixes_learn_from_the_teacher(name: str, noise: PatchSet, tmp_path: Path) -> None:
    """Prefixes imitate similarities; so does the whole, unless kind and dimensions agree."""
    if name == "taught":
        name = str(tmp_path / "teacher" / "weights.safetensors")
        train(SMALL.model_copy(update={"dimensions": 32}), noise, tmp_path / "teacher")
    recipe = NESTED.model_copy(update={"teacher": name, "distillation_weight": 3.0})
    train(recipe, noise, tmp_path / "run")
    assert read_losses(tmp_path / "run")[0] == pytest.approx(first_loss(recipe, noise, 1), abs=1e-4)


def test_the_lengths_are_recorded_on_the_card(noise: PatchSet, tmp_path: Path) -> None:
    trained = train(NESTED, noise, tmp_path / "run")
    weights = tmp_path / "run" / "weights.safetensors"
    assert trained.prefixes == load(weights, fast=False).prefixes == (8, 16)
    assert read_card(weights).prefixes == [8, 16]
    assert read_card(weights).origin.recipe["prefixes"] == [16, 8]
    assert load("doap-demo-128", fast=False).prefixes == ()
