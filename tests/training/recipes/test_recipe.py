from pathlib import Path

import pytest
import yaml

from doap import DoapError
from doap.training.recipes.reading import RENAMED_KEYS, check_used, read_recipe, read_recorded_recipe, upgrade_recipe
from doap.training.recipes.recipe import Recipe


def test_the_papers_choices_by_default() -> None:
    recipe = Recipe()
    assert (recipe.momentum, recipe.weight_decay, recipe.dropout, recipe.dimensions) == (0.9, 1e-4, 0.1, 128)
    assert (recipe.lr, recipe.batch_size, recipe.width) == (0.1, 1024, 32)


def test_the_learning_rate_scales_with_the_batch_size() -> None:
    assert Recipe(batch_size=4096).initial_lr() == pytest.approx(0.4)


def test_settings_override_the_file(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("kind: binary\nepochs: 3\n")
    recipe = read_recipe(tmp_path / "r.yaml", ["epochs=7", "lr = 0.2", "bins=null"])
    assert (recipe.kind, recipe.epochs, recipe.lr, recipe.bins) == ("binary", 7, 0.2, None)


def test_yaml_round_trip(tmp_path: Path) -> None:
    recipe = Recipe(kind="binary", dimensions=256, bins=32, seed=5)
    (tmp_path / "r.yaml").write_text(recipe.to_yaml())
    assert read_recipe(tmp_path / "r.yaml") == recipe


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("learning_rat: 0.1", [], "learning_rat: Extra inputs are not permitted; keys are network"),
        ("epochs: many", [], "epochs: Input should be a valid integer"),
        ("kind: complex", [], "kind: Input should be 'real' or 'binary'"),
        ("epochs: 0", [], "epochs: Input should be greater than 0"),
        ("- a\n- b", [], "a recipe is a list of 'key: value' lines"),
        ("a: [", [], "not valid YAML"),
        ("source_weights: {views: 1}", [], "r.yaml: recipe: source_weights needs sampling=pools, not groups"),
        ("source_weights: {view: 1}\nsampling: pools", [], "view.*: Input should be 'views', 'static' or 'tracks'"),
        ("source_weights: {views: 0}\nsampling: pools", [], "source_weights.views: Input should be greater than 0"),
        (
            "matching_weight: 1\nobjective: hardnet",
            [],
            "bins and bin_power need objective=ap, not hardnet",
        ),
        ("bin_power: 1.5\nobjective: fastap", [], "bins and bin_power need objective=ap, not fastap"),
        ("bins: 40\nobjective: fastap", [], "bins and bin_power need objective=ap, not fastap"),
        ("bin_power: 0", [], "bin_power: Input should be greater than 0"),
        ("objective: l2net\nnetwork: hynet", [], "objective=l2net compares batch-normalised feature maps"),
        ("prefixes: [64, 64]", [], "prefixes must be distinct and shorter than dimensions=128, not .64, 64."),
        ("prefixes: [64, 128]", [], "prefixes must be distinct and shorter than dimensions=128, not .64, 128."),
        ("prefixes: [4]", [], "prefixes.*: Input should be greater than or equal to 8"),
        ("prefixes: []", [], "prefixes: List should have at least 1 item"),
        ("kind: binary\nprefixes: [64, 60]", [], "prefixes of binary descriptors must be multiples of 8, not .64, 60."),
        ("objective: l2net\nprefixes: [64]", [], "objective=l2net compares feature maps, which have no prefixes"),
        ("network: cs-l2net", ["prefixes=[64]"], "cs-l2net concatenates the descriptors of two networks"),
        ("mining_clusters: 40", [], "mining_clusters and mining_percentile need label_mining=true"),
        ("", ["mining_percentile=30"], "mining_clusters and mining_percentile need label_mining=true"),
        ("", ["teacher=[]", "distillation_weight=2"], "teacher must name at least one model"),
        ("label_mining: true", ["mining_clusters=0"], "mining_clusters: Input should be greater than or equal to 1"),
        ("label_mining: true", ["mining_percentile=101"], "mining_percentile: Input should be less than or equal to"),
        ("", ["epochs"], "write it as key=value"),
        ("", ["epochs=["], r"--set epochs=\[: not valid YAML"),
        ("", ["lr=2001-99-99"], "lr: Input should be a valid number"),
        ("", ["lr=!!bool x"], "--set lr=!!bool x: not valid YAML"),
        ("", ["lr=!!timestamp x"], "--set lr=!!timestamp x: not valid YAML"),
        ("", ["seed=" + 5000 * "9"], "^--set seed=9{75}…: not valid YAML .* too many digits"),
        ("", [f"seed={2**64}"], "--set seed=18446744073709551616: not valid YAML .*more than 64 bits"),
        ("", ["lr=1.0e+300"], "lr: Input should be less than or equal to 1000000000"),
        ("", ["lr=.inf"], "lr: Input should be a finite number"),
        ("", ["pooled_weight=1.0e+300"], "pooled_weight: Input should be less than or equal to"),
        ("", ["sampling=pools", "source_weights={views: 1.0e+300}"], "source_weights.views: Input should be less than"),
        ("", ["bins=1000000000"], "bins: Input should be less than or equal to 65536"),
        ("", ["batch_size=1000000000000"], "batch_size: Input should be less than or equal to"),
        ("", ["label_mining=true", "mining_clusters=1000000000"], "mining_clusters: Input should be less than"),
        ("", ["epochs=" + 1000 * "["], "^--set epochs=.{,80}: not valid YAML .nested deeper than 32 levels.$"),
        (f"seed: {5000 * '9'}", [], "r.yaml: not valid YAML .* too many digits"),
        (f"seed: {1000 * '['}", [], "r.yaml: not valid YAML .nested deeper than 32 levels.$"),
        ("epochs: &a [*a]", [], "r.yaml: not valid YAML .an alias contains itself.$"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, text: str, settings: list[str], message: str) -> None:
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(DoapError, match=message) as caught:
        read_recipe(tmp_path / "r.yaml", settings)
    assert "\n" not in str(caught.value)


OLD = {
    "list_size": 96,
    "views": 4,
    "per_pool": 8,
    "shares": {"views": 3.0, "fixed": 1.0},
    "sampling": "pools",
    "spacing": 1.5,
    "pooled": 0.5,
    "matching": 2.0,
    "distil": 3.0,
    "slower": 50.0,
    "averaging": 0.9,
    "held_out": 0.25,
}
NEW = Recipe(
    batch_size=96,
    views_per_group=4,
    groups_per_sequence=8,
    source_weights={"views": 3.0, "static": 1.0},
    sampling="pools",
    bin_power=1.5,
    pooled_weight=0.5,
    matching_weight=2.0,
    distillation_weight=3.0,
    transformer_lr_divisor=50.0,
    ema_decay=0.9,
    val_fraction=0.25,
)


def test_a_recipe_recorded_by_version_0_1_is_translated(tmp_path: Path) -> None:
    assert Recipe.model_validate(upgrade_recipe(OLD)) == NEW
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(OLD))
    assert read_recorded_recipe(tmp_path / "recipe.yaml") == NEW
    (tmp_path / "recipe.yaml").write_text(NEW.to_yaml())
    assert read_recorded_recipe(tmp_path / "recipe.yaml") == NEW


@pytest.mark.parametrize(("old", "new"), RENAMED_KEYS.items())
def test_renamed_keys_of_a_user_are_one_line_with_the_new_name(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(f"epochs: 3\n{old}: 2\n")
    with pytest.raises(DoapError, match=rf"r\.yaml: {old} was renamed; use {new}$"):
        read_recipe(path)
    path.write_text("epochs: 3\n")
    with pytest.raises(DoapError, match=rf"^--set {old}=2: {old} was renamed; use {new}$"):
        read_recipe(path, [f"{old}=2"])


def test_several_renamed_keys_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(yaml.safe_dump({"list_size": 64, "views": 2}))
    with pytest.raises(DoapError, match=r"list_size, views were renamed; use batch_size, views_per_group$"):
        read_recipe(tmp_path / "r.yaml")


def test_a_missing_recipe(tmp_path: Path) -> None:
    with pytest.raises(DoapError, match="cannot be read"):
        read_recipe(tmp_path / "nowhere.yaml")


def test_a_recorded_recipe_may_have_keys_without_an_effect(tmp_path: Path) -> None:
    recipe = Recipe(groups_per_sequence=16, distillation_weight=3.0)
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml())
    assert read_recorded_recipe(tmp_path / "recipe.yaml") == recipe


def test_a_key_needs_an_effect_on_one_training_of_a_series() -> None:
    plain, aligned = Recipe(transformer_lr_divisor=5), Recipe(transformer_lr_divisor=5, transformer=True)
    check_used([plain, aligned], "r.yaml")
    with pytest.raises(DoapError, match=r"^r\.yaml: transformer_lr_divisor=5 needs transformer=true; "):
        check_used([Recipe(), plain], "r.yaml")
