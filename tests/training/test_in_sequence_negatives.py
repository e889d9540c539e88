"""Trainings without negatives of the query's own sequence (section 4.2 of the paper)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from doap import DoapError, PatchSet
from doap.datasets.batches.sequence_tables import SequenceTables
from doap.datasets.sets.groups import GroupedSet
from doap.training.log import read_losses, read_validation
from doap.training.objective import BASELINES, make_objective
from doap.training.recipes.recipe import Recipe
from doap.training.trainer import train
from support.trainings import SMALL

AP: list[dict[str, Any]] = [
    {"kind": kind, **further}
    for kind in ("real", "binary")
    for further in ({}, {"pooled_weight": 0.5, "matching_weight": 2.0}, {"bin_power": 1.5})
]
OBJECTIVES = [*AP, *({"objective": name} for name in BASELINES)]
GROUPS = np.arange(24) // 4


def loss_and_gradient(settings: dict[str, Any], sequences: list[int]) -> tuple[float, torch.Tensor]:
    """Compute the loss of 6 groups of 4, in sequences whose patches ignore each other."""
    outputs = torch.randn(24, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    ignore = SequenceTables(GroupedSet(GROUPS, np.array(sequences)[GROUPS])).ignore_table(np.arange(24))
    objective = make_objective(Recipe(dimensions=16, **settings))
    loss = objective(outputs, torch.from_numpy(GROUPS), ignore)
    (gradient,) = torch.autograd.grad(loss, outputs)
    return loss.item(), gradient


@pytest.mark.parametrize("settings", OBJECTIVES, ids=str)
def test_a_batch_of_one_sequence_has_a_finite_gradient(settings: dict[str, Any]) -> None:
    loss, gradient = loss_and_gradient(settings, [3] * 6)
    assert np.isfinite(loss)
    assert gradient.isfinite().all()
    if settings.get("objective") in (None, "hardnet", "sosnet", "fastap", "smooth-ap", "triplet"):
        assert loss == pytest.approx(0, abs=1e-6)  # a list without negatives is ranked correctly
        assert gradient.abs().max() < 1e-6


@pytest.mark.parametrize("settings", OBJECTIVES, ids=str)
def test_groups_of_sequences_of_their_own_lose_no_negative(settings: dict[str, Any]) -> None:
    loss, gradient = loss_and_gradient(settings, list(range(6)))
    outputs = torch.randn(24, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    plain = make_objective(Recipe(dimensions=16, **settings))(outputs, torch.from_numpy(GROUPS), None)
    (expected,) = torch.autograd.grad(plain, outputs)
    assert loss == pytest.approx(plain.item(), rel=1e-6)
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(
    "settings", [{}, {"kind": "binary"}, {"objective": "hardnet"}, {"objective": "l2net"}], ids=str
)
def test_a_training_ignores_them_in_validation_too(settings: dict[str, Any], noise: PatchSet, tmp_path: Path) -> None:
    changes = {**settings, "in_sequence_negatives": False, "val_fraction": 0.5, "epochs": 1}
    train(SMALL.model_copy(update=changes), noise, tmp_path / "run")
    assert np.isfinite(read_losses(tmp_path / "run")).all()
    ((_, ap),) = read_validation(tmp_path / "run")
    assert 0 < ap < 1


def test_mined_labels_supply_the_negatives_that_would_be_ignored() -> None:
    with pytest.raises(ValueError, match="label_mining supplies in-sequence negatives"):
        Recipe(label_mining=True, in_sequence_negatives=False)


def test_one_validation_sequence_is_one_line(noise: PatchSet, tmp_path: Path) -> None:
    recipe = SMALL.model_copy(update={"in_sequence_negatives": False})
    with pytest.raises(DoapError, match="has no negatives of other sequences"):
        train(recipe, noise, tmp_path / "run", validation=noise.select(noise.sequences == 0))
