"""Study files: which trainings to compare, and which key of each to tune."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from doap.choices import MAX_SEED
from doap.errors import DoapError
from doap.experiments.series import folder_part
from doap.parsing.yaml_files import read_yaml
from doap.training.recipes.reading import read_recipe, setting_keys
from doap.training.recipes.recipe import Recipe

STUDIES_FOLDER = Path(__file__).parent.parent / "studies"

Settings = dict[str, Any]
# One recipe key and the values to try.
Tuning = Annotated[dict[str, Annotated[list[Any], Field(min_length=1)]], Field(max_length=1)]
# Becomes part of a folder name.
RunName = Annotated[str, Field(pattern=r"^[\w.+-][\w .+-]*$", max_length=80)]


class _RunEntry(BaseModel):
    """A run in the file; fields that it leaves out are those of the study."""

    model_config = ConfigDict(extra="forbid")

    recipe: str | None = None
    settings: Settings = {}
    tune: Tuning | None = None


class _StudyFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    recipe: str
    settings: Settings = {}
    tune: Tuning = {}
    seeds: list[Annotated[int, Field(ge=0, le=MAX_SEED)]] = Field(min_length=1)
    runs: dict[RunName, _RunEntry | None] = Field(min_length=1)


@dataclass(frozen=True)
class Study:
    """Trainings to compare.

    Attributes:
        base: Recipe that all runs modify; the batches for the common evaluation are sampled with it.
        seeds: Seeds of each run; settings are tuned with the first.
        runs: Recipes of each run by setting, such as "lr=0.5"; the setting is "" if nothing is tuned.
    """

    base: Recipe
    seeds: list[int]
    runs: dict[str, dict[str, Recipe]] = field(default_factory=dict)

    def recipe(self, run: str, setting: str, seed: int) -> Recipe:
        """Return the recipe of one training."""
        return self.runs[run][setting].model_copy(update={"seed": seed})


def folder_name(run: str, setting: str, seed: int) -> str:
    """Return the name of the run folder of one training.

    Example:
        >>> folder_name("hardnet", "lr=0.5", 2), folder_name("ap", "", 0)
        ('hardnet,lr=0.5,seed=2', 'ap,seed=0')
    """
    return ",".join([run, *([folder_part(setting)] if setting else []), f"seed={seed}"])


def list_studies() -> list[str]:
    """Return the names of the studies that ship with the package."""
    return sorted(file.stem for file in STUDIES_FOLDER.glob("*.yaml"))


def read_study(name_or_path: str | Path, settings: list[str] | None = None) -> Study:
    """Read a study.

    Args:
        name_or_path: Name of a study that ships with the package, or path of a YAML file.
        settings: `key=value` texts that override the recipes of all runs.

    Raises:
        DoapError: If the file or a run is invalid; one line that names it.

    Example:
        >>> study = read_study("objectives")
        >>> list(study.runs)[:3], list(study.runs["hardnet"])
        (['ap', 'ap-pooled', 'ap-matching'], ['lr=0.3', 'lr=1.0', 'lr=3.0', 'lr=9.0'])
    """
    path = STUDIES_FOLDER / f"{name_or_path}.yaml" if str(name_or_path) in list_studies() else Path(name_or_path)
    file = _read_file(path)
    overrides = list(settings or [])
    _check_seed(path, file, overrides)
    try:
        study = Study(read_recipe(file.recipe, [*_to_texts(file.settings), *overrides]), file.seeds)
    except DoapError as error:
        raise DoapError(f"{path}: {error}") from error
    if len(set(file.seeds)) < len(file.seeds):
        raise DoapError(f"{path}: seeds: a seed is repeated")
    for name, entry in file.runs.items():
        run = entry or _RunEntry()
        texts = [*_to_texts(file.settings), *_to_texts(run.settings), *overrides]
        tuning = file.tune if run.tune is None else run.tune
        for key in tuning:
            if key in setting_keys(overrides):
                raise DoapError(f"--set {key}: is tuned by run {name} of {path.name}; leave it out")
        try:
            study.runs[name] = _recipes_to_tune(run.recipe or file.recipe, texts, tuning)
        except DoapError as error:
            raise DoapError(f"{path}: run {name}: {error}") from error
    return study


def _check_seed(path: Path, file: _StudyFile, overrides: list[str]) -> None:
    """Check that only `seeds` sets the seeds of the trainings; another one would have no effect.

    Raises:
        DoapError: If the file or an override sets the key `seed`.
    """
    if "seed" in setting_keys(overrides):
        raise DoapError(f"--set seed: a study has the seeds of its file; leave it out, or change seeds in {path.name}")
    sections = {"settings": file.settings, "tune": file.tune}
    for name, run in file.runs.items():
        if run is not None:
            sections |= {f"run {name}: settings": run.settings, f"run {name}: tune": run.tune or {}}
    for section, values in sections.items():
        if "seed" in setting_keys(values):
            raise DoapError(f"{path}: {section}: seed: a study has the seeds of its list seeds; leave it out")


def _recipes_to_tune(recipe: str, texts: list[str], tuning: dict[str, list[Any]]) -> dict[str, Recipe]:
    """Return the recipes to choose from, by setting."""
    if not tuning:
        return {"": read_recipe(recipe, texts)}
    ((key, values),) = tuning.items()
    recipes = {}
    for value in values:
        variant = read_recipe(recipe, [*texts, *_to_texts({key: value})])
        recipes[f"{key}={getattr(variant, key)}"] = variant
    if len(recipes) < len(values):
        raise DoapError(f"tune: a value of {key} is repeated")
    return recipes


def _to_texts(settings: Settings) -> list[str]:
    """Return settings as `--set` texts; JSON is valid YAML."""
    return [f"{key}={json.dumps(value)}" for key, value in settings.items()]


def _read_file(path: Path) -> _StudyFile:
    try:
        return _StudyFile.model_validate(read_yaml(path))
    except OSError as error:
        shipped = f" (studies that ship with doap: {', '.join(list_studies())})"
        raise DoapError(f"{path}: cannot be read ({error.strerror}){shipped}") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the file"
        raise DoapError(f"{path}: {key}: {first['msg']}") from error
    except ValueError as error:
        raise DoapError(f"{path}: not valid YAML ({error})") from error
