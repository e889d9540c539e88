"""docs/paper.md names files, recipe keys, recipes and targets that exist, and every target of the paper."""

import re
from pathlib import Path

from doap.experiments.reproduce.targets import paper_targets
from doap.training.recipes.reading import list_recipes
from doap.training.recipes.recipe import Recipe

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
CODE = re.findall(r"`([^`\n]+)`", PAGE)


def test_every_file_exists() -> None:
    package = ROOT / "src" / "doap"
    files = [name for name in CODE if re.fullmatch(r"[\w/]+(\.py|/)", name)]
    assert len(files) > 30
    beside = package / "datasets" / "label_mining"
    missing = [name for name in files if not (package / name).exists() and not (beside / name).exists()]
    assert not missing


def test_every_key_and_recipe_exists() -> None:
    keys = [name.partition(":")[0] for name in re.findall(r"keys? `([^`]+)`", PAGE)]
    assert len(keys) > 4
    assert set(keys) <= set(Recipe.model_fields)
    for pattern in re.findall(r"recipes `([\w-]+)\*`", PAGE):
        assert any(recipe.startswith(pattern) for recipe in list_recipes())


def test_every_table_and_figure_has_its_command() -> None:
    assert set(re.findall(r"doap reproduce ((?:table|figure)-[\w-]+)", PAGE)) == set(paper_targets())
