"""Reading of recipes: those that ship with the package, files, settings of the command line, and recorded ones."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from doap.errors import DoapError
from doap.networks import split_length, with_length
from doap.parsing.yaml_files import parse_yaml, read_yaml
from doap.training.recipes.recipe import Recipe

MAX_QUOTE = 80  # characters of a setting that an error repeats
RECIPES_FOLDER = Path(__file__).parent.parent.parent / "recipes"

RENAMED_KEYS = {
    "list_size": "batch_size",
    "views": "views_per_group",
    "per_pool": "groups_per_sequence",
    "shares": "source_weights",
    "spacing": "bin_power",
    "pooled": "pooled_weight",
    "matching": "matching_weight",
    "distil": "distillation_weight",
    "slower": "transformer_lr_divisor",
    "averaging": "ema_decay",
    "held_out": "val_fraction",
}
"""Current keys by those of version 0.1. Recorded recipes are translated; old keys in a user's recipe are refused."""

NEEDS: tuple[tuple[str, Callable[[Recipe], bool], str], ...] = (
    ("groups_per_sequence", lambda recipe: recipe.sampling == "pools", "sampling=pools"),
    ("distillation_weight", lambda recipe: bool(recipe.teachers), "a teacher"),
    ("transformer_lr_divisor", lambda recipe: recipe.transformer, "transformer=true"),
)
"""Keys that only some trainings use: the key, whether a recipe uses it, and what it needs."""


def list_recipes() -> dict[str, str]:
    """Return the names of the recipes that ship with the package, with a one-line description each.

    Example:
        >>> list_recipes()["phototour-real"]
        'Phototour, DOAP+: 128-d real-valued; three trainings, one per set, give the six train/test pairs.'
    """
    files = sorted(RECIPES_FOLDER.glob("*.yaml"), key=lambda file: file.stem)
    return {file.stem: file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for file in files}


def setting_keys(settings: Iterable[str]) -> set[str]:
    """Return the keys of `key=value` texts."""
    return {setting.partition("=")[0].strip() for setting in settings}


def read_recipe(
    name_or_path: str | Path, settings: list[str] | None = None, overrides: Mapping[str, Any] | None = None
) -> Recipe:
    """Read a recipe.

    Args:
        name_or_path: Name of a recipe that ships with the package, or path of a YAML file.
        settings: `key=value` texts that override the file.
        overrides: Values by key that override the file and the settings.

    Raises:
        DoapError: If the file, a key or a value is invalid; one line that names it.
    """
    values = _read_yaml(_find_recipe(str(name_or_path)))
    check_renamed(values, str(name_or_path))
    for setting in settings or []:
        key, equals, text = setting.partition("=")
        key = key.strip()
        where = f"--set {_shorten(setting)}"
        if not equals:
            raise DoapError(f"{where}: write it as key=value")
        check_renamed([key], where)
        try:
            values[key] = parse_yaml(text)
        except ValueError as error:
            raise DoapError(f"{where}: not valid YAML ({error})") from error
    recipe = _validate({**values, **(overrides or {})}, str(name_or_path))
    # A run may be resumed from another folder.
    models = {key: _with_absolute_paths(getattr(recipe, key)) for key in ("initial_weights", "teacher")}
    return recipe.model_copy(update=models)


def read_recorded_recipe(path: Path) -> Recipe:
    """Read the recipe.yaml of a run folder, also one written by version 0.1.

    Raises:
        DoapError: If the file is missing or invalid.
    """
    return _validate(upgrade_recipe(_read_yaml(path)), str(path))


def upgrade_recipe(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded recipe with the keys of this version.

    Args:
        values: Recipe as recorded in a run folder, on a card or in the file of a study or sweep.

    Example:
        >>> upgrade_recipe({"list_size": 64, "shares": {"fixed": 1.0}, "lr": 0.1})
        {'batch_size': 64, 'source_weights': {'static': 1.0}, 'lr': 0.1}
    """
    upgraded = {RENAMED_KEYS.get(key, key): value for key, value in values.items()}
    weights = upgraded.get("source_weights")
    if isinstance(weights, dict):
        upgraded["source_weights"] = {"static" if name == "fixed" else name: w for name, w in weights.items()}
    return upgraded


def check_renamed(keys: Iterable[str], where: str) -> None:
    """Raise a DoapError that names the new keys if some keys are those of version 0.1."""
    old = [key for key in keys if key in RENAMED_KEYS]
    if old:
        new = ", ".join(RENAMED_KEYS[key] for key in old)
        raise DoapError(f"{where}: {', '.join(old)} {'was' if len(old) == 1 else 'were'} renamed; use {new}")


def _find_recipe(name: str) -> Path:
    recipes = list_recipes()
    if name in recipes:
        return RECIPES_FOLDER / f"{name}.yaml"
    path = Path(name)
    if path.exists() or path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        return path
    raise DoapError(f"{name}: no such file, and no recipe of this name (there are: {', '.join(recipes)})")


def _with_absolute_paths(models: str | list[str] | None) -> str | list[str] | None:
    """Return models, each by name or path, with absolute paths."""
    if isinstance(models, list):
        return [str(_with_absolute_paths(model)) for model in models]
    if models is None:
        return None
    path, length = split_length(models)
    return with_length(str(Path(path).absolute()), length) if Path(path).exists() else models


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values: Any = read_yaml(path)
    except OSError as error:
        raise DoapError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise DoapError(f"{path}: not valid YAML ({error})") from error
    values = {} if values is None else values
    if not isinstance(values, dict):
        raise DoapError(f"{path}: a recipe is a list of 'key: value' lines")
    return values


def check_used(recipes: Sequence[Recipe], where: str) -> None:
    """Check that keys of trainings have an effect: of a single one, or in a series in at least one of them.

    Args:
        recipes: Recipe of each training.
        where: What they were read from, for the error.

    Raises:
        DoapError: If a key has a value without an effect.
    """
    for key, is_used, need in NEEDS:
        if any(map(is_used, recipes)):
            continue
        default = Recipe.model_fields[key].default
        for value in (getattr(recipe, key) for recipe in recipes):
            if value != default:
                raise DoapError(f"{where}: {key}={value:g} needs {need}; without it, set {key}={default:g}")


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_QUOTE else f"{line[:MAX_QUOTE]}…"


def _validate(values: Mapping[str, Any], where: str) -> Recipe:
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "recipe"
        keys = f"; keys are {', '.join(Recipe.model_fields)}" if first["type"] == "extra_forbidden" else ""
        message = first["msg"].removeprefix("Value error, ")
        raise DoapError(f"{where}: {key}: {message}{keys}") from error
