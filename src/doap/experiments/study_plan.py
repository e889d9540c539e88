"""The file of a study: which trainings to compare, and what of each is tuned first, so that none is tuned more."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from doap.errors import DoapError
from doap.training.recipe import Recipe, read_recipe

SHIPPED = Path(__file__).parent.parent / "studies"

Settings = dict[str, Any]
# One key of the recipe and the values to try.
Tuned = Annotated[dict[str, Annotated[list[Any], Field(min_length=1)]], Field(max_length=1)]
# Names folders, with the seed behind it.
Name = Annotated[str, Field(pattern=r"^[\w.+-][\w .+-]*$", max_length=80)]


class _Run(BaseModel):
    """What a run changes; what it does not say is the study's."""

    model_config = ConfigDict(extra="forbid")

    recipe: str | None = None
    settings: Settings = {}
    tune: Tuned | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    recipe: str
    settings: Settings = {}
    tune: Tuned = {}
    seeds: list[Annotated[int, Field(ge=0)]] = Field(min_length=1)
    runs: dict[Name, _Run | None] = Field(min_length=1)


@dataclass(frozen=True)
class Study:
    """What is compared.

    Attributes:
        lists: the recipe that all runs change: it draws the lists that all are judged on.
        seeds: of the trainings of each run; what is tuned is tried with the first.
        runs: by the name of each run its recipes, by what tells them apart, "lr=0.5" or so; "" where nothing is tuned.
    """

    lists: Recipe
    seeds: list[int]
    runs: dict[str, dict[str, Recipe]] = field(default_factory=dict)

    def recipe(self, run: str, tried: str, seed: int) -> Recipe:
        """The recipe of one training."""
        return self.runs[run][tried].model_copy(update={"seed": seed})


def folder_name(run: str, tried: str, seed: int) -> str:
    """What the folder of one training is called.

    Example:
        >>> folder_name("hardnet", "lr=0.5", 2), folder_name("ap", "", 0)
        ('hardnet,lr=0.5,seed=2', 'ap,seed=0')
    """
    return ",".join([run, *([tried] if tried else []), f"seed={seed}"])


def list_studies() -> list[str]:
    """Names of the studies that ship with the package."""
    return sorted(file.stem for file in SHIPPED.glob("*.yaml"))


def read_study(name_or_path: str | Path, settings: list[str] | None = None) -> Study:
    """Read a study.

    Args:
        name_or_path: the name of one that ships with the package, or the path of a YAML file.
        settings: `key=value` texts over the recipes of all runs.

    Raises:
        DoapError: one line that names the file, the run and the error.

    Example:
        >>> study = read_study("objectives")
        >>> list(study.runs)[:3], list(study.runs["hardnet"])
        (['ap', 'ap-pooled', 'ap-matching'], ['lr=0.3', 'lr=1.0', 'lr=3.0', 'lr=9.0'])
    """
    path = SHIPPED / f"{name_or_path}.yaml" if str(name_or_path) in list_studies() else Path(name_or_path)
    file = _read(path)
    over = list(settings or [])
    study = Study(read_recipe(file.recipe, [*_texts(file.settings), *over]), file.seeds)
    if len(set(file.seeds)) < len(file.seeds):
        raise DoapError(f"{path}: seeds: one comes twice")
    for name, given in file.runs.items():
        run = given or _Run()
        texts = [*_texts(file.settings), *_texts(run.settings), *over]
        tuned = file.tune if run.tune is None else run.tune
        try:
            study.runs[name] = _tries(run.recipe or file.recipe, texts, tuned)
        except DoapError as error:
            raise DoapError(f"{path}: run {name}: {error}") from error
    return study


def _tries(recipe: str, texts: list[str], tuned: dict[str, list[Any]]) -> dict[str, Recipe]:
    """The recipes to choose from."""
    if not tuned:
        return {"": read_recipe(recipe, texts)}
    ((key, values),) = tuned.items()
    tries = {}
    for value in values:
        (text,) = _texts({key: value})
        found = read_recipe(recipe, [*texts, text])
        tries[f"{key}={getattr(found, key)}"] = found
    if len(tries) < len(values):
        raise DoapError(f"tune: a value of {key} comes twice")
    return tries


def _texts(settings: Settings) -> list[str]:
    """As `--set` has them; JSON is YAML, too."""
    return [f"{key}={json.dumps(value)}" for key, value in settings.items()]


def _read(path: Path) -> _File:
    try:
        return _File.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        known = f" (studies that ship with doap: {', '.join(list_studies())})"
        raise DoapError(f"{path}: cannot be read ({error.strerror}){known}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DoapError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise DoapError(f"{path}: {place}: {first['msg']}") from error
