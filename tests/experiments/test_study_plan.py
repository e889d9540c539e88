import re
from pathlib import Path

import pytest

from doap import DoapError
from doap.experiments.study_plan import folder_name, list_studies, read_study
from doap.training.recipes.reading import read_recipe

FILE = """
recipe: frames-real
settings: {bin_power: null, pooled_weight: 0, epochs: 2}
seeds: [4, 7]
tune: {lr: [0.1, 1]}
runs:
  ap:
  binary: {recipe: frames-binary, tune: {}}
  hardnet: {settings: {objective: hardnet, epochs: 3}, tune: {momentum: [0.5, 0.9]}}
"""

LAUGHS = "a0: &a0 [1, 2]" + "".join(f", a{i}: &a{i} [{', '.join(10 * [f'*a{i - 1}'])}]" for i in range(1, 12))
"""Nested aliases that stand for 2 · 10¹¹ values."""


def test_runs_are_the_recipe_with_what_the_study_and_they_change(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(FILE)
    study = read_study(tmp_path / "s.yaml", ["dropout=0.2"])
    assert study.seeds == [4, 7]
    shared = ["bin_power=null", "pooled_weight=0", "epochs=2", "dropout=0.2"]
    assert study.base == read_recipe("frames-real", shared)
    hardnet = [*shared, "objective=hardnet", "epochs=3"]
    assert study.runs == {
        "ap": {f"lr={lr}": read_recipe("frames-real", [*shared, f"lr={lr}"]) for lr in (0.1, 1.0)},
        "binary": {"": read_recipe("frames-binary", shared)},
        "hardnet": {f"momentum={m}": read_recipe("frames-real", [*hardnet, f"momentum={m}"]) for m in (0.5, 0.9)},
    }
    assert study.recipe("ap", "lr=1.0", 7) == read_recipe("frames-real", [*shared, "lr=1", "seed=7"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("seeds: [4, 7]", "seeds: []"), "seeds: List should have at least 1 item"),
        (("seeds: [4, 7]", "seeds: [4, 4]"), "seeds: a seed is repeated"),
        (("seeds: [4, 7]", "seeds: [-1]"), "seeds.0: Input should be greater than or equal to 0"),
        (("seeds: [4, 7]", ""), "seeds: Field required"),
        (("recipe: frames-real", "recipe: frames-rael"), "frames-rael: no such file, and no recipe of this name"),
        (("runs:", "run:"), "runs: Field required"),
        (("objective: hardnet", "objective: hardnot"), "run hardnet: frames-real: objective: Input should be 'ap'"),
        (("objective: hardnet,", "objectiv: hardnet,"), "run hardnet: frames-real: objectiv: Extra inputs"),
        (("lr: [0.1, 1]", "lr: [0.1, 0.10]"), "run ap: tune: a value of lr is repeated"),
        (("lr: [0.1, 1]", "lr: []"), "tune.lr: List should have at least 1 item"),
        (("lr: [0.1, 1]", "lr: [0.1], epochs: [1]"), "tune: Dictionary should have at most 1 item"),
        (("  ap:", "  ../ap:"), "String should match pattern"),
        (("{recipe: frames-binary", "{recipes: frames-binary"), "runs.binary.recipes: Extra inputs"),
        (("runs:", "runs: ["), "not valid YAML"),
        (("runs:", "runs:\n  ap: {settings: {epochs: 9}}"), "the key ap is repeated, in line "),
        (("settings: {bin_power", "settings: {spacing"), "--set spacing=null: spacing was renamed; use bin_power"),
        (("seeds: [4, 7]", "seeds: [18446744073709551616]"), "not valid YAML (an integer has more than 64 bits)"),
        (("lr: [0.1, 1]", "lr: [2001-99-99]"), "run ap: frames-real: lr: Input should be a valid number"),
        (("epochs: 2}", "epochs: 2001-01-01}"), "frames-real: epochs: Input should be a valid integer"),
        (("epochs: 2}", f"epochs: {1000 * '['}"), "not valid YAML (nested deeper than 32 levels)"),
        (("lr: [0.1, 1]", LAUGHS), "not valid YAML (has more than 100,000 values, aliases included)"),
        (("tune: {lr:", "tune: {list_size:"), "run ap: --set list_size=0.1: list_size was renamed; use batch_size"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    (tmp_path / "s.yaml").write_text(FILE.replace(*change))
    with pytest.raises(DoapError, match=r"s\.yaml|frames-rael") as caught:
        read_study(tmp_path / "s.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folders_of_settings_that_are_paths() -> None:
    name = folder_name("ap", "teacher=/runs/large/weights.safetensors", 1)
    assert re.fullmatch(r"ap,teacher=runs-large-weights\.safetensors-[0-9a-f]{8},seed=1", name)
    assert name != folder_name("ap", "teacher=/runs-large/weights.safetensors", 1)
    assert folder_name("ap", f"teacher={200 * 'x'}", 1) != folder_name("ap", f"teacher={201 * 'x'}", 1)
    assert len(folder_name(80 * "a", f"initial_weights=/{200 * 'ä/'}", 2**64 - 1)) < 200


def test_a_missing_study_names_those_that_ship() -> None:
    with pytest.raises(DoapError, match=r"nowhere: cannot be read .*ship with doap: .*objectives"):
        read_study("nowhere")


@pytest.mark.parametrize("name", list_studies())
def test_every_study_that_ships_can_be_read(name: str) -> None:
    assert read_study(name).runs


def test_objectives_are_compared_on_the_same_batches_at_as_many_rates() -> None:
    study = read_study("objectives")
    assert {next(iter(tries.values())).objective for tries in study.runs.values()} == {
        "ap", "hardnet", "hardnet-gor", "sosnet", "hynet", "l2net", "fastap", "smooth-ap", "triplet",
    }  # fmt: skip
    uneven, even = {"ap-uneven", "ap-uneven-pooled"}, {"pooled_weight": 0.0, "matching_weight": 0.0, "bin_power": None}
    pooled = {"pooled_weight": 1.0}
    extras = {"ap-pooled": pooled, "ap-matching": {"matching_weight": 2.0}, "ap-uneven-pooled": pooled}
    for run, tries in study.runs.items():
        expected = {**even, **extras.get(run, {}), **({"bin_power": 1.5} if run in uneven else {})}
        assert all({key: getattr(recipe, key) for key in even} == expected for recipe in tries.values()), run
    rates = [[recipe.lr for recipe in tries.values()] for tries in study.runs.values()]
    assert {len(values) for values in rates} == {4}
    assert all(27 <= values[3] / values[0] <= 33.4 for values in rates)  # as wide a range for each
    blind = {"objective": "ap", "lr": 0.1, **even}
    alike = {recipe.model_copy(update=blind).to_yaml() for tries in study.runs.values() for recipe in tries.values()}
    assert alike == {study.base.model_copy(update=blind).to_yaml()}


def test_what_is_tuned_cannot_be_set() -> None:
    with pytest.raises(DoapError, match=r"--set lr: is tuned by run ap of objectives\.yaml; leave it out"):
        read_study("objectives", [" lr=0.1"])
    assert read_study("objectives", ["epochs=1"]).runs["ap"]["lr=1.0"].epochs == 1


def test_seeds_are_those_of_the_file_alone() -> None:
    with pytest.raises(DoapError, match=r"^--set seed: .*; leave it out, or change seeds in objectives\.yaml$"):
        read_study("objectives", ["epochs=1", " seed = 5"])


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (("epochs: 2}", "epochs: 2, seed: 5}"), "settings"),
        (("epochs: 3}", "epochs: 3, seed: 5}"), "run hardnet: settings"),
        (("tune: {lr: [0.1, 1]}", "tune: {seed: [1, 2]}"), "tune"),
        (("tune: {momentum: [0.5, 0.9]}", "tune: {seed: [1, 2]}"), "run hardnet: tune"),
    ],
)
def test_a_seed_in_the_file_beside_its_seeds_is_one_line(tmp_path: Path, change: tuple[str, str], place: str) -> None:
    (tmp_path / "s.yaml").write_text(FILE.replace(*change))
    with pytest.raises(DoapError, match=rf"s\.yaml: {place}: seed: .* leave it out$") as caught:
        read_study(tmp_path / "s.yaml")
    assert "\n" not in str(caught.value)
