from copy import copy
from pathlib import Path

import pytest
import torch

from doap import Descriptor, FrameSet
from doap.networks.architecture import build_network
from doap.networks.card import read_card
from doap.training.data_cache import DataCache
from doap.training.trainer import train
from doap.training.validation import CommonValidation, Validation
from support.trainings import SMALL, same_files

RECIPE = SMALL.model_copy(update={"views_per_group": 2, "batch_size": 40, "epochs": 1, "zoom": 1.0})


def with_extent(frames: FrameSet, extent: float) -> FrameSet:
    """Return the same frames as a set of another extent."""
    other = copy(frames)
    other.extent = extent
    return other


def test_a_training_at_an_extent_is_that_on_a_set_of_the_extent(frames: FrameSet, tmp_path: Path) -> None:
    recipe = RECIPE.model_copy(update={"val_fraction": 0.5})
    cut, built = tmp_path / "cut", tmp_path / "built"
    model = train(recipe.model_copy(update={"extent": 24.0}), frames, cut)
    train(recipe, with_extent(frames, 24.0), built)
    assert same_files(cut, built, "log.csv", "validation.csv", "weights.safetensors")
    assert model.extent == read_card(cut / "weights.safetensors").extent == 24.0
    assert read_card(cut / "best.safetensors").extent == 24.0


def test_models_are_compared_each_at_its_extent(frames: FrameSet) -> None:
    common = CommonValidation(frames, RECIPE, "cpu", DataCache())
    network = build_network(RECIPE.architecture)
    precisions = []
    for extent in (12.0, 24.0):
        expected = Validation(with_extent(frames, extent), RECIPE, torch.device("cpu"), 32).average_precision(network)
        precisions.append(common.average_precision(Descriptor(network, "real", extent, "model")))
        assert precisions[-1] == pytest.approx(expected)
    assert precisions[0] != precisions[1]
