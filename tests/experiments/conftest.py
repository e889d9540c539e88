"""A small set and a small recipe."""

from pathlib import Path

import pytest

from doap import PatchSet
from support.trainings import SMALL, noisy_patches

RECIPE = SMALL.model_copy(update={"batch_size": 64, "epochs": 1})


@pytest.fixture(scope="session")
def patches() -> PatchSet:
    """Three noisy views of each of 60 points, in six sequences."""
    return noisy_patches(60)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """File of a recipe whose training takes three steps."""
    path = tmp_path / "small.yaml"
    path.write_text(RECIPE.to_yaml())
    return path
