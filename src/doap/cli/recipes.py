"""`doap recipes`."""

import json

from doap.cli.console import say
from doap.training.recipe import list_recipes, read_recipe

EXAMPLE = "Example: doap recipes"


def recipes() -> None:
    """List the recipes that ship with doap: what each is, and the values that differ from the defaults."""
    for name, line in list_recipes().items():
        say(name, style="bold")
        say(f"    {line}")
        say(f"    {differences(name)}", style="dim")


def differences(name: str) -> str:
    """The values of a recipe that differ from the defaults, as they are written after --set."""
    changed = read_recipe(name).model_dump(exclude_defaults=True)
    texts = {
        key: value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        for key, value in changed.items()
    }
    return " ".join(f"{key}={text}" for key, text in texts.items())
