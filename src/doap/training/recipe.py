"""Recipes: everything that decides a training besides the data, typed, in one YAML file."""

from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, PositiveFloat, ValidationError, model_validator

from doap.datasets.sets.frame_set import Source
from doap.errors import DoapError
from doap.networks.architecture import Architecture
from doap.types import Kind

Objective = Literal["ap", "hardnet", "hardnet-gor", "l2net", "sosnet", "hynet", "fastap", "smooth-ap", "triplet"]
EPOCHS_A_STEP = 10
SHIPPED = Path(__file__).parent.parent / "recipes"


class Recipe(Architecture):
    """A network and how to train it; the paper's choices by default (section 4 and appendix C)."""

    # The descriptor.
    kind: Kind = Field(default="real", description="real (unit vectors) or binary (bits)")
    dropout: float = Field(default=0.1, ge=0, lt=1)
    # The lists.
    list_size: int = Field(default=1024, ge=2, description="M, patches a batch")
    sampling: Literal["groups", "every-group-first", "sequence-pairs", "pools"] = Field(
        default="groups", description="groups over all sequences, or lists from few of them; see patches/sampling.py"
    )
    views: int | None = Field(default=None, ge=2, description="patches each group gives; all it has by default")
    per_pool: int = Field(default=64, gt=0, description="groups from each sequence, where sampling is pools")
    shares: dict[Source, PositiveFloat] | None = Field(
        default=None,
        min_length=1,
        description="of the pools of a batch, by source; of frame sets; as they come by default",
    )
    augment: bool = Field(default=False, description="flip and turn the patches of a group, all alike")
    zoom: float = Field(
        default=0.0, ge=0, le=4, description="octaves by which groups are seen closer, at most; of frame sets alone"
    )
    jitter: float = Field(
        default=1.0, ge=0, le=4, description="factor of how far views are moved and turned; of frame sets alone"
    )
    label_mining: bool = Field(default=False, description="ignore patches of a sequence that look too much alike")
    # The objective.
    objective: Objective = Field(default="ap", description="ap, or that of a peer")
    bins: int | None = Field(default=None, ge=1, description="b; by default 25 for real, one a bit for binary")
    spacing: float | None = Field(
        default=None, gt=0, description="bins, 10 by default, are even in this power of relative squared distances"
    )
    pooled: float = Field(default=0.0, ge=0, description="weight of the AP of all queries' pairs in one list")
    matching: float = Field(
        default=0.0, ge=0, description="weight of the AP of all queries' matches and nearest non-matches in one list"
    )
    teacher: str | None = Field(default=None, description="a trained model to follow as well, by its name or path")
    distil: float = Field(default=1.0, gt=0, description="weight of following the teacher")
    # The descent.
    epochs: int = Field(default=100, gt=0)
    lr: float = Field(default=0.1, gt=0, description="learning rate at M = 1,024; scaled linearly with M")
    schedule: Literal["linear", "steps"] = Field(
        default="linear", description="the rate falls linearly to 0, or is divided by 10 every 10 epochs"
    )
    slower: float = Field(
        default=100.0, ge=1, description="divides the rate of the layer that predicts the Spatial Transformer's move"
    )
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=1e-4, ge=0)
    averaging: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="decay of the weights' moving average, which is kept in their place; 0: none",
    )
    # How it is run.
    held_out: float = Field(default=0.0, ge=0, lt=1, description="share of the scenes kept for validation")
    chunk: int | None = Field(
        default=None, ge=4, description="patches the network sees at once; longer lists are worked off in parts"
    )
    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="auto", description="of the network; auto is bf16 where the hardware multiplies it, fp32 elsewhere"
    )
    compile: bool = Field(default=False, description="torch.compile the network: try whether it pays on your device")
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _trains(self) -> Self:
        """Refuse what does not go together."""
        if self.shares and self.sampling != "pools":
            raise ValueError(f"shares are of pools: they need sampling=pools, not {self.sampling}")
        if self.kind == "binary" and self.dimensions % 8:
            raise ValueError(f"bits come in bytes: dimensions must be a multiple of 8, not {self.dimensions}")
        if self.objective != "ap":
            if self.kind == "binary":
                raise ValueError(f"objective {self.objective} trains real-valued descriptors only")
            if self.pooled or self.matching or self.spacing:
                raise ValueError(f"pooled, matching and spacing belong to objective ap, not {self.objective}")
        return self

    @property
    def architecture(self) -> Architecture:
        """The network alone, as a card says it."""
        return Architecture(**{name: getattr(self, name) for name in Architecture.model_fields})

    def initial_rate(self) -> float:
        """The learning rate that training starts with."""
        return self.lr * self.list_size / 1024

    def rate(self, epoch: int, share: float) -> float:
        """The learning rate when `share` of an epoch, in [0, 1), is done."""
        if self.schedule == "steps":
            return self.initial_rate() / float(10 ** (epoch // EPOCHS_A_STEP))
        return self.initial_rate() * (1 - (epoch + share) / self.epochs)

    def to_yaml(self) -> str:
        """As it is written to a run folder."""
        return yaml.safe_dump(self.model_dump(), sort_keys=False)


def list_recipes() -> dict[str, str]:
    """Names of the recipes that ship with the package, each with the line that says what it is.

    Example:
        >>> list_recipes()["phototour-real"]
        'Phototour, DOAP+: 128-d real-valued; one training a set, three in all, give the six train/test pairs.'
    """
    files = sorted(SHIPPED.glob("*.yaml"), key=lambda file: file.stem)
    return {file.stem: file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for file in files}


def read_recipe(name_or_path: str | Path, settings: list[str] | None = None) -> Recipe:
    """Read a recipe, with `key=value` settings over it.

    Args:
        name_or_path: the name of one that ships with the package, or the path of a YAML file.
        settings: `key=value` texts.

    Raises:
        DoapError: one line that names the file, the key and the error.
    """
    path = _find(str(name_or_path))
    try:
        values: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DoapError(f"{path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DoapError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from error
    values = {} if values is None else values
    if not isinstance(values, dict):
        raise DoapError(f"{path}: a recipe is a list of 'key: value' lines")
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not equals:
            raise DoapError(f"--set {setting}: write it as key=value")
        try:
            values[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise DoapError(f"--set {setting}: not valid YAML ({' '.join(str(error).split())})") from error
    try:
        recipe = Recipe.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "recipe"
        known = f"; known keys are {', '.join(Recipe.model_fields)}" if first["type"] == "extra_forbidden" else ""
        raise DoapError(f"{name_or_path}: {place}: {first['msg']}{known}") from error
    if recipe.teacher is not None and Path(recipe.teacher).exists():  # to be found wherever the run goes on from
        return recipe.model_copy(update={"teacher": str(Path(recipe.teacher).absolute())})
    return recipe


def _find(wanted: str) -> Path:
    """The file of a recipe; one that is nowhere but is called like a file is left to be told by who reads it."""
    known = list_recipes()
    if wanted in known:
        return SHIPPED / f"{wanted}.yaml"
    path = Path(wanted)
    if path.exists() or path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        return path
    raise DoapError(f"{wanted}: no such file, and no recipe of this name (there are: {', '.join(known)})")
