import re
from pathlib import Path

from doap.cli.learning.recipes import differences
from doap.training.recipes.reading import list_recipes, read_recipe
from doap.training.recipes.recipe import Recipe
from support.command_line import Doap

PAGE = Path(__file__).parents[3] / "docs" / "recipes.md"


def test_the_listing_has_description_and_differences_of_each_recipe(doap: Doap) -> None:
    status, shown, _ = doap("recipes")
    assert status == 0
    lines = shown.splitlines()
    assert lines[::3] == list(list_recipes())
    assert [line.strip() for line in lines[1::3]] == list(list_recipes().values())
    assert set(lines[lines.index("hpatches-st-lm-binary") + 2].split()) == {
        "kind=binary", "transformer=true", "transformer_bounded=false", "dimensions=256", "split=a",
        "sampling=sequence-pairs", "label_mining=true",
        "epochs=32", "schedule=steps",
    }  # fmt: skip


def test_the_differences_make_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    assert read_recipe(tmp_path / "empty.yaml") == Recipe()
    for name in list_recipes():
        assert read_recipe(tmp_path / "empty.yaml", differences(name).split()) == read_recipe(name)


def test_the_page_holds_the_listing() -> None:
    rows = re.findall(r"^\| `(\S+)` \| (.+?) \| `(.+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(name, line, differences(name)) for name, line in list_recipes().items()]


def test_a_recipe_is_trained_by_its_name(doap: Doap, tmp_path: Path) -> None:
    status, _, errors = doap("train", "phototuor-real", "--data", "set", "-o", "run")
    assert (status, errors.count("\n")) == (1, 1)
    assert "no recipe of this name (there are: frames-binary, " in errors
    status, _, errors = doap("train", "phototour-real", "--data", "nowhere", "-o", "run")
    assert (status, "nowhere: not a patch set" in errors) == (1, True)  # the recipe was found
    assert not (tmp_path / "run").exists()
