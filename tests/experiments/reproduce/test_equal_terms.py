"""Equal terms on look-alike sets: steps, schedule and learning rates."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from doap.datasets.official.training_set import open_training_set
from doap.errors import DoapError
from doap.experiments.reproduce.data import DataFolder
from doap.experiments.reproduce.equal_terms import LEARNING_RATES, equal_terms
from doap.experiments.reproduce.plan import make_plan
from doap.experiments.reproduce.targets import look_alike_targets
from doap.training.batches import make_sampler
from doap.training.recipes.reading import read_recipe
from support.sets.small_data_folder import make_data_folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    folder = make_data_folder(tmp_path_factory.mktemp("data"))
    for scene, name in zip("abc", ("liberty", "notredame", "yosemite"), strict=True):
        (folder / f"phototour-{name}").rename(folder / f"phototour-{scene}")
    return DataFolder(folder, is_look_alike=True)


def test_every_objective_of_the_targets_has_a_learning_rate() -> None:
    for target in look_alike_targets().values():
        for training in target.trainings:
            recipe = read_recipe(training.recipe, list(training.settings))
            assert LEARNING_RATES[recipe.kind, recipe.objective] > 0


def test_steps_are_equal_for_pairs_groups_and_pairs_of_sequences(data: DataFolder, tmp_path: Path) -> None:
    targets = look_alike_targets()
    # 36 groups of 16 patches in three sequences; batches of 64 patches.
    plan = make_plan([targets["figure-hpatches"]], data, tmp_path, settings=["batch_size=64"], steps=90)
    epochs = {job.training.name: job.recipe.epochs for job in plan.jobs}
    assert epochs["DOAP-hpatches"] == math.ceil(90 / (36 * 16 // 64))
    assert epochs["HardNet-hpatches"] == math.ceil(90 / (36 * 2 // 64))
    assert epochs["DOAP-ST-LM-hpatches"] == math.ceil(90 / 3)
    assert {job.recipe.schedule for job in plan.jobs} == {"linear"}


def test_the_prediction_layer_keeps_its_learning_rate(data: DataFolder) -> None:
    recipe = read_recipe("hpatches-st-real", ["batch_size=64"])
    patches = open_training_set([data.path("hpatches")], recipe.split)
    changed = read_recipe("hpatches-st-real", ["batch_size=64", *equal_terms(recipe, patches, 50)])
    assert changed.lr > recipe.lr
    assert changed.lr / changed.transformer_lr_divisor == pytest.approx(recipe.lr / recipe.transformer_lr_divisor)


@pytest.mark.parametrize("lr", [0.1, 0.5])
def test_the_prediction_layer_keeps_its_learning_rate_whatever_the_user_sets(
    data: DataFolder, tmp_path: Path, lr: float
) -> None:
    own = read_recipe("hpatches-st-real")
    plan = make_plan(
        [look_alike_targets()["figure-hpatches"]], data, tmp_path, settings=["batch_size=64", f"lr = {lr}"]
    )
    recipe = next(job.recipe for job in plan.jobs if job.training.recipe == "hpatches-st-real")
    assert recipe.lr == lr
    assert recipe.lr / recipe.transformer_lr_divisor == pytest.approx(own.lr / own.transformer_lr_divisor)


def test_the_prediction_layer_is_never_faster_than_the_others(data: DataFolder) -> None:
    recipe = read_recipe("hpatches-st-real", ["batch_size=64"])
    patches = open_training_set([data.path("hpatches")], recipe.split)
    assert equal_terms(recipe, patches, 50, lr=1e-4)[-1] == "transformer_lr_divisor=1"


def test_overrides_of_the_user_come_last(data: DataFolder, tmp_path: Path) -> None:
    settings = ["batch_size=12", "views_per_group=2", "lr=0.7"]
    plan = make_plan([look_alike_targets()["table-2"]], data, tmp_path, settings=settings, steps=9)
    assert {job.recipe.lr for job in plan.jobs} == {0.7}


def test_sweeps_take_as_many_steps_for_each_batch_size(data: DataFolder, tmp_path: Path) -> None:
    target = look_alike_targets()["figure-batch-size"]
    target = replace(target, sweeps=tuple(replace(sizes, values=(32, 48)) for sizes in target.sweeps))
    plan = make_plan([target], data, tmp_path, settings=["width=2", "batch_size=8"], steps=90)
    assert len(plan.jobs) == 6
    for job in plan.jobs:
        sampler = make_sampler(open_training_set(job.paths, job.recipe.split), job.recipe)
        assert job.recipe.epochs == math.ceil(90 / sampler.count(0))
        assert (job.recipe.schedule, job.recipe.lr) == ("linear", LEARNING_RATES["real", "ap"])
    assert [job.recipe.batch_size for job in plan.jobs] == [32, 48] * 3
    assert [recipe for planned in plan.sweeps for recipe in planned.sweep.recipes.values()] == [
        job.recipe for job in plan.jobs
    ]


def test_a_batch_that_is_too_large_names_its_training(data: DataFolder, tmp_path: Path) -> None:
    with pytest.raises(DoapError, match=r"batch-size-phototour/batch_size=256: .*lower batch_size"):
        make_plan([look_alike_targets()["figure-batch-size"]], data, tmp_path)


def test_an_objective_without_a_tuned_rate_keeps_that_of_the_recipe(data: DataFolder, tmp_path: Path) -> None:
    settings = ["batch_size=12", "kind=real", "objective=sosnet", "views_per_group=2"]
    plan = make_plan([look_alike_targets()["table-2"]], data, tmp_path, settings=settings, steps=9)
    assert plan.jobs[0].recipe.lr == read_recipe("romepatches-real").lr
