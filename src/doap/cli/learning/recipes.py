"""`doap recipes`."""

import json

from doap.cli.console import say

EXAMPLE = "Example: doap recipes"


def recipes() -> None:
    """List the shipped recipes: a description, and the values that differ from the defaults."""
    from doap.training.recipes.reading import list_recipes

    for name, line in list_recipes().items():
        say(name, style="bold")
        say(f"    {line}")
        say(f"    {differences(name)}", style="dim")


def differences(name: str) -> str:
    """Return the values of a recipe that differ from the defaults, as `--set` texts."""
    from doap.training.recipes.reading import read_recipe

    changed = read_recipe(name).model_dump(exclude_defaults=True)
    texts = {
        key: value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        for key, value in changed.items()
    }
    return " ".join(f"{key}={text}" for key, text in texts.items())
