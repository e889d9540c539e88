from pathlib import Path

import pytest

from doap import DoapError
from doap.training.recipe import Recipe, read_recipe


def test_the_papers_choices_by_default() -> None:
    recipe = Recipe()
    assert (recipe.momentum, recipe.weight_decay, recipe.dropout, recipe.dimensions) == (0.9, 1e-4, 0.1, 128)
    assert (recipe.lr, recipe.batch_size, recipe.width) == (0.1, 1024, 32)


def test_the_rate_scales_with_the_list() -> None:
    assert Recipe(batch_size=4096).initial_lr() == pytest.approx(0.4)


def test_settings_go_over_the_file(tmp_path: Path) -> None:
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
        ("learning_rat: 0.1", [], "learning_rat: Extra inputs are not permitted; known keys are network"),
        ("epochs: many", [], "epochs: Input should be a valid integer"),
        ("kind: complex", [], "kind: Input should be 'real' or 'binary'"),
        ("epochs: 0", [], "epochs: Input should be greater than 0"),
        ("- a\n- b", [], "a recipe is a list of 'key: value' lines"),
        ("a: [", [], "not valid YAML"),
        ("shares: {views: 1}", [], "shares are of pools: they need sampling=pools, not groups"),
        ("shares: {view: 1}\nsampling: pools", [], "shares.view.*: Input should be 'views', 'static' or 'tracks'"),
        ("shares: {views: 0}\nsampling: pools", [], "shares.views: Input should be greater than 0"),
        ("matching: 1\nobjective: hardnet", [], "pooled, matching and spacing belong to objective ap, not hardnet"),
        ("spacing: 1.5\nobjective: fastap", [], "pooled, matching and spacing belong to objective ap, not fastap"),
        ("spacing: 0", [], "spacing: Input should be greater than 0"),
        ("", ["epochs"], "write it as key=value"),
        ("", ["epochs=["], r"--set epochs=\[: not valid YAML"),
    ],
)
def test_faults_are_one_line(tmp_path: Path, text: str, settings: list[str], message: str) -> None:
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(DoapError, match=message) as caught:
        read_recipe(tmp_path / "r.yaml", settings)
    assert "\n" not in str(caught.value)


def test_the_former_name_of_the_source_static_is_read(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("shares: {views: 3, fixed: 1}\nsampling: pools")
    assert read_recipe(tmp_path / "r.yaml").shares == {"views": 3, "static": 1}


def test_a_missing_recipe(tmp_path: Path) -> None:
    with pytest.raises(DoapError, match="cannot be read"):
        read_recipe(tmp_path / "nowhere.yaml")
