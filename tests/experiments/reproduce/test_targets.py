"""Targets: their trainings, data and names."""

from itertools import chain

import pytest

from doap.datasets.download.catalogue import CATALOGUE
from doap.experiments.reproduce.targets import (
    LOOK_ALIKE_SCENES,
    PAPER_SCENES,
    Target,
    look_alike_targets,
    paper_targets,
)
from doap.training.recipes.reading import read_recipe
from doap.training.recipes.recipe import Recipe

PAPER, LOOK_ALIKE = paper_targets(), look_alike_targets()


def trainings_recipes(target: Target) -> dict[str, Recipe]:
    return {t.name: read_recipe(t.recipe, list(t.settings)) for t in target.trainings}


def test_every_data_set_of_the_paper_can_be_downloaded() -> None:
    names = set(chain.from_iterable((*target.datasets, *target.optional) for target in PAPER.values()))
    assert names <= set(CATALOGUE)


@pytest.mark.parametrize("target", [*PAPER.values(), *LOOK_ALIKE.values()], ids=lambda target: target.name)
def test_trainings_use_only_the_data_of_their_target(target: Target) -> None:
    assert set(chain.from_iterable(t.datasets for t in target.trainings)) <= set(target.datasets)
    assert {sweep.dataset for sweep in target.sweeps} <= set(target.datasets)
    assert set(target.binarised) <= {t.name for t in target.trainings}


@pytest.mark.parametrize("targets", [PAPER, LOOK_ALIKE])
def test_trainings_of_one_name_are_the_same_training(targets: dict[str, Target]) -> None:
    by_name = {t.name: t for target in targets.values() for t in target.trainings}
    assert all(by_name[t.name] == t for target in targets.values() for t in target.trainings)


@pytest.mark.parametrize(("targets", "scenes"), [(PAPER, PAPER_SCENES), (LOOK_ALIKE, LOOK_ALIKE_SCENES)])
def test_table_1_trains_every_method_on_every_scene(targets: dict[str, Target], scenes: tuple[str, ...]) -> None:
    recipes: dict[str, set[str]] = {}
    for training in targets["table-1"].trainings:
        recipes.setdefault(training.recipe, set()).update(training.datasets)
    assert len(recipes) == 10
    assert all(datasets == {f"phototour-{scene}" for scene in scenes} for datasets in recipes.values())


def test_recipes_follow_the_paper() -> None:
    table_1 = trainings_recipes(PAPER["table-1"])
    assert all(recipe.augment and recipe.epochs == 100 for recipe in table_1.values())
    assert not table_1["DOAP-ST+-liberty"].transformer_bounded
    assert table_1["DOAP-ST+-liberty"].transformer_padding == "replicate"
    hpatches = trainings_recipes(PAPER["figure-hpatches"])
    assert all(r.split == "a" for name, r in hpatches.items() if name.endswith("hpatches") or name == "HardNet++")
    assert not hpatches["DOAP-hpatches"].in_sequence_negatives
    assert hpatches["DOAP-ST-LM-hpatches"].label_mining
    assert trainings_recipes(PAPER["table-2"])["DOAP-romepatches"].split == "train"
    replicate, zeros = trainings_recipes(PAPER["figure-alignment"]).values()
    assert zeros == replicate.model_copy(update={"transformer_padding": "zeros"})


def test_look_alike_sets_compare_each_objective_on_equal_terms() -> None:
    rome = trainings_recipes(LOOK_ALIKE["table-2"])
    reference = rome["DOAP-romepatches"]
    for recipe in rome.values():
        same = {"objective": "ap", "views_per_group": None, "kind": "real", "dimensions": 128}
        assert recipe.model_copy(update=same) == reference
    hpatches = trainings_recipes(LOOK_ALIKE["figure-hpatches"])
    plain = hpatches["DOAP-LM-hpatches"]
    with_transformer = hpatches["DOAP-ST-LM-hpatches"]
    assert plain.model_copy(update={"transformer": True, "transformer_bounded": False}) == with_transformer
