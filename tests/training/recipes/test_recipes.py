"""The shipped recipes against what the paper states, from a table written here by hand."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from doap import DoapError, PatchSet, list_models
from doap.datasets.official.opening import open_dataset
from doap.datasets.official.training_set import open_training_set
from doap.datasets.sets.groups import GroupedSet
from doap.demo.training import RECIPES
from doap.networks.registry import find_card
from doap.training.batches import make_sampler
from doap.training.recipes.reading import list_recipes, read_recipe
from doap.training.recipes.recipe import Recipe
from doap.training.trainer import train

# Section 5 and appendix D: what all trainings share, then what each set of experiments changes.
ALWAYS = {"momentum": 0.9, "batch_size": 1024, "lr": 0.1, "width": 32, "pooled_weight": 0, "bins": None,
          "val_fraction": 0, "split": None, "in_sequence_negatives": True}  # fmt: skip
PHOTOTOUR = {**ALWAYS, "weight_decay": 1e-4, "dropout": 0.1, "epochs": 100, "schedule": "linear", "augment": True,
             "sampling": "groups", "label_mining": False}  # fmt: skip
HPATCHES = {**ALWAYS, "weight_decay": 1e-4, "dropout": 0.1, "epochs": 32, "schedule": "steps", "augment": False,
            "sampling": "groups", "label_mining": False, "split": "a", "in_sequence_negatives": False}  # fmt: skip
ROME = {**ALWAYS, "weight_decay": 5e-4, "dropout": 0.5, "epochs": 5, "schedule": "linear", "augment": False,
        "sampling": "every-group-first", "label_mining": False, "transformer": False, "split": "train"}  # fmt: skip
MINED = {**HPATCHES, "sampling": "sequence-pairs", "label_mining": True, "in_sequence_negatives": True}
REAL = {"kind": "real", "dimensions": 128}
BINARY = {"kind": "binary", "dimensions": 256}
# Appendix B: identity plus the prediction, whose layer learns 100 times slower; the border is repeated.
PAPER_ST = {"transformer": True, "transformer_bounded": False, "transformer_padding": "replicate",
            "transformer_lr_divisor": 100}  # fmt: skip

PAPER: dict[str, dict[str, Any]] = {
    "phototour-real": {**PHOTOTOUR, **REAL, "transformer": False},
    "phototour-binary": {**PHOTOTOUR, **BINARY, "transformer": False},
    "phototour-st-real": {**PHOTOTOUR, **REAL, **PAPER_ST},
    "phototour-st-binary": {**PHOTOTOUR, **BINARY, **PAPER_ST},
    "hpatches-real": {**HPATCHES, **REAL, "transformer": False},
    "hpatches-binary": {**HPATCHES, **BINARY, "transformer": False},
    "hpatches-st-real": {**HPATCHES, **REAL, **PAPER_ST},
    "hpatches-st-binary": {**HPATCHES, **BINARY, **PAPER_ST},
    "hpatches-st-lm-real": {**MINED, **REAL, **PAPER_ST},
    "hpatches-st-lm-binary": {**MINED, **BINARY, **PAPER_ST},
    "romepatches-real": {**ROME, **REAL},
    "romepatches-binary": {**ROME, **BINARY},
}
COMMON = {"network": "l2net", "objective": "ap", "views_per_group": None}
PAPER = {name: {**values, **COMMON} for name, values in PAPER.items()}

# The baselines: what each objective takes, and where the network of a baseline is another.
PAIRS = {"network": "l2net", "dimensions": 128, "views_per_group": 2, "lr": 0.1}
BASELINES: dict[str, dict[str, Any]] = {
    "hardnet": {**PAIRS, "objective": "hardnet"},
    "hardnet-gor": {**PAIRS, "objective": "hardnet-gor"},
    "l2net": {**PAIRS, "objective": "l2net"},
    "cs-l2net": {**PAIRS, "objective": "l2net", "network": "cs-l2net", "dimensions": 256},
    "sosnet": {**PAIRS, "objective": "sosnet"},
    "hynet": {**PAIRS, "objective": "hynet"},
    "fastap": {**PAIRS, "objective": "fastap", "views_per_group": None},
    "triplet": {**PAIRS, "objective": "triplet"},
    "tl-as-gor": {**PAIRS, "objective": "triplet-gor"},
}
# Beyond the paper: a large frame set. AP in uneven bins with stronger jitter, or with the list of matching.
# Networks that are small, binary or aligned are distilled from a larger or plainer one.
FRAMES = {"batch_size": 4096, "sampling": "pools", "views_per_group": 4, "zoom": 2, "val_fraction": 0.1,
          "source_weights": {"views": 3, "static": 1, "tracks": 1}}  # fmt: skip
UNEVEN = {"jitter": 1.5, "bin_power": 1.5, "bins": None, "matching_weight": 0, "lr": 2}
MATCHING = {"jitter": 1, "matching_weight": 2, "pooled_weight": 0}
EVEN = {"bin_power": None, "bins": 32, **MATCHING}
TINY = {**UNEVEN, "network": "windows", "dropout": 0, "extent": 17, "epochs": 8, "ema_decay": 0.99}
DISTILLED = {"teacher": "doap-128", "distillation_weight": 5}
ALIGNED = {"transformer": True, "transformer_bounded": True, "transformer_padding": "replicate",
           "transformer_lr_divisor": 10000}  # fmt: skip
SURROUND = {"surround": 1, "extent": 34, "zoom": 3, "blur": 1.3, "compression": 0.2, "prefixes": [32, 64]}
OURS: dict[str, dict[str, Any]] = {
    "frames-real": {**REAL, **UNEVEN, "pooled_weight": 0.3, "epochs": 12},
    "frames-binary": {**BINARY, **UNEVEN, **DISTILLED, "pooled_weight": 0, "epochs": 9, "distillation_weight": 3},
    "frames-surround-real": {
        **REAL, **UNEVEN, **SURROUND, "width": 24, "teacher": "doap-large-128", "distillation_weight": 2,
        "pooled_weight": 0.3, "epochs": 10,
    },
    "frames-surround-binary": {
        **BINARY, **UNEVEN, **SURROUND, "width": 24, "teacher": "doap-large-128", "distillation_weight": 3,
        "pooled_weight": 0, "prefixes": [64, 128], "epochs": 7,
    },
    "frames-large-real": {
        **REAL, **UNEVEN, **SURROUND, "network": "residual", "width": 64, "depth": 2, "pooled_weight": 0.3,
        "ema_decay": 0.99, "epochs": 10,
    },
    "frames-st-real": {**REAL, **ALIGNED, **UNEVEN, **DISTILLED, "pooled_weight": 0, "epochs": 5},
    "frames-st-binary": {**BINARY, **ALIGNED, **EVEN, **DISTILLED, "lr": 2, "epochs": 6, "teacher": "doap-256b"},
    "frames-tiny-real": {**REAL, **TINY, "teacher": None, "pooled_weight": 0.3, "matching_weight": 1},
    "frames-tiny-binary": {
        **BINARY, **TINY, **DISTILLED, "teacher": "doap-256b", "pooled_weight": 0, "matching_weight": 2,
    },
}  # fmt: skip
TABLE = {
    **PAPER,
    **{f"phototour-{name}": {**PHOTOTOUR, "kind": "real", **values} for name, values in BASELINES.items()},
    **{f"hpatches-{name}": {**HPATCHES, "kind": "real", **values} for name, values in BASELINES.items()},
    "hardnet-plus-plus": {
        **HPATCHES,
        "kind": "real",
        **BASELINES["hardnet"],
        "augment": True,
        "in_sequence_negatives": True,
    },  # as Liberty is one sequence
    **{name: {**FRAMES, **values} for name, values in OURS.items()},
    "photos-real": {**REAL, "bin_power": 1.5, "pooled_weight": 0, "epochs": 20, "lr": 2},
    "photos-tiny-real": {**REAL, "network": "tiny", "width": 48, "dropout": 0, "bin_power": 1.5, "epochs": 20, "lr": 6},
    "photos-binary": {**BINARY, "bin_power": 1.5, "pooled_weight": 0, "epochs": 20, "lr": 2},
}


def test_the_recipes_are_those_of_the_table() -> None:
    assert list(list_recipes()) == sorted(TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_each_value_is_the_papers(name: str) -> None:
    values = read_recipe(name).model_dump()
    assert {key: values[key] for key in TABLE[name]} == TABLE[name]


@pytest.mark.parametrize("name", TABLE)
def test_each_recipe_starts_with_a_description(name: str) -> None:
    line = list_recipes()[name]
    assert 20 < len(line) < 120
    assert line.endswith(".")
    assert not line.startswith("#")


@pytest.mark.parametrize("name", PAPER)
def test_the_rate_over_the_epochs(name: str) -> None:
    recipe = read_recipe(name)
    assert recipe.initial_lr() == pytest.approx(0.1)
    if name.startswith("hpatches"):
        epochs, expected = [0, 9, 10, 19, 20, 29, 30, 31], [0.1, 0.1, 1e-2, 1e-2, 1e-3, 1e-3, 1e-4, 1e-4]
        assert [recipe.lr_at(epoch, 0.7) for epoch in epochs] == pytest.approx(expected)
    elif name.startswith("phototour"):
        assert [recipe.lr_at(epoch, 0) for epoch in (0, 25, 50, 99)] == pytest.approx([0.1, 0.075, 0.05, 0.001])
    else:
        assert [recipe.lr_at(epoch, 0.5) for epoch in range(5)] == pytest.approx([0.09, 0.07, 0.05, 0.03, 0.01])


@pytest.mark.parametrize(("size", "rate"), [(256, 0.025), (512, 0.05), (1024, 0.1), (2048, 0.2), (4096, 0.4)])
def test_the_rate_over_the_batch_sizes_of_the_papers_figure(size: int, rate: float) -> None:
    assert read_recipe("phototour-real", [f"batch_size={size}"]).initial_lr() == pytest.approx(rate)


@pytest.mark.parametrize("name", ["hpatches-st-lm-real", "hpatches-st-lm-binary"])
def test_label_mining_visits_every_pair_of_76_sequences(name: str) -> None:
    groups = np.arange(76 * 40 * 16) // 16
    data = GroupedSet(groups, groups // 40)
    sampler = make_sampler(data, read_recipe(name))
    assert sampler.count(0) == sampler.count(31) == 2850 == 76 * 75 // 2
    for batch in (next(sampler.batches(0)), next(sampler.batches(7, 2849))):
        sequences = data.group_sequences[np.unique(groups[batch])]
        assert (len(batch), np.unique(sequences, return_counts=True)[1].tolist()) == (1024, [32, 32])


@pytest.fixture(scope="module")
def rome(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both halves of RomePatches in the official format: 1,000 groups of 10 each; the training half is dark."""
    folder = tmp_path_factory.mktemp("data") / "romepatches"
    folder.mkdir()
    for half, grey in (("train", 10), ("test", 200)):
        stem = folder / f"patch_retrieval_Rome_{half}"
        savemat(f"{stem}.mat", {"patches": np.full((51, 51, 10_000), grey, np.uint8)}, do_compression=True)
        labels = {"labels_gt": np.arange(1000.0)[None], "labels": np.repeat(np.arange(1000.0), 9)[None]}
        savemat(f"{stem}_labels.mat", labels)
    return folder


@pytest.mark.parametrize("name", ["romepatches-real", "romepatches-binary"])
def test_rome_starts_a_batch_with_each_of_the_1000_training_groups(
    name: str, rome: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path_factory.getbasetemp() / "rome-cache"))
    recipe = read_recipe(name)
    data = open_training_set([rome], recipe.split)
    assert isinstance(data, PatchSet)
    sampler = make_sampler(data, recipe)
    assert sampler.count(0) == sampler.count(4) == 1000 == len(np.unique(data.groups))
    sampled = [data.groups[batch] for batch in sampler.batches(2)]
    assert all(len(groups) == 1020 and len(np.unique(groups)) == 102 for groups in sampled)
    assert [int(groups[0]) for groups in sampled] == np.unique(data.groups).tolist()
    assert set(data.take(range(len(data)))[:, 0, 0]) == {10}  # no patch of the test half
    with pytest.raises(DoapError, match="split=train, but the training set holds 1 sequence outside it: test"):
        train(recipe, open_dataset(rome), rome.parent / "run")


@pytest.mark.parametrize("name", ["phototour-real", "phototour-hardnet", "hpatches-hynet", "hpatches-real"])
def test_a_batch_is_of_whole_groups_or_of_pairs(name: str) -> None:
    data = GroupedSet(np.arange(76 * 10 * 16) // 16, np.arange(76 * 10 * 16) // 160)
    recipe = read_recipe(name)
    batch = next(make_sampler(data, recipe).batches(0))
    _, sizes = np.unique(data.groups[batch], return_counts=True)
    assert len(batch) == 1024
    assert set(sizes) == ({2} if "hardnet" in name or "hynet" in name else {16})


def test_a_name_precedes_a_file_and_settings_override_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("phototour-real").write_text("epochs: 1\n")
    Path("mine").write_text("epochs: 1\n")
    assert read_recipe("phototour-real", ["epochs=7", "dropout=0"]).epochs == 7
    assert read_recipe(Path("phototour-real")).epochs == 100
    assert read_recipe("mine").epochs == 1


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        DoapError, match=r"phototuor-real: no such file, and no recipe of this name .*phototour-real"
    ) as f:
        read_recipe("phototuor-real")
    assert "\n" not in str(f.value)
    assert all(name in str(f.value) for name in list_recipes())


@pytest.mark.parametrize("model", list_models())
def test_the_command_on_a_card_gives_the_recipe_of_the_model(model: str) -> None:
    card = find_card(model)
    assert card
    command = card.origin.notes["command"]
    if command == "doap demo":
        recipe = RECIPES[model]
    else:
        recipe = read_recipe(command.split()[2], re.findall(r"--set (\S+)", command))
    trained = Recipe.model_validate(card.origin.recipe)  # keys that the card lacks have their defaults
    assert trained == recipe
