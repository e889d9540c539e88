"""Model cards: `NAME.json` beside the weights `NAME.safetensors`; in folders of model hubs, `config.json`.

A card states how to build and use the network, its provenance, and the SHA-256 of its weights.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from doap.choices import DETECTOR_NAMES
from doap.errors import DoapError, inflect
from doap.files import write_text
from doap.networks.architecture import Architecture, shapes_of
from doap.networks.descriptor import check_prefix, prefix_name
from doap.types import Kind

HUB_WEIGHTS, HUB_CARD = "model.safetensors", "config.json"
"""Names of the weights and the card in a folder of a model hub, as Hugging Face's libraries expect them."""

UNSTATED = "no licence"
"""How the licence of a source begins that states none."""

INHERITED_NOTES = ("conversion", "limits")  # the others describe the training of the base model alone


class DataSource(BaseModel):
    """Number of training photos from one source under one licence."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    licence: str
    photos: int = Field(gt=0)

    @property
    def states_licence(self) -> bool:
        """Whether the source states a licence of any kind."""
        return not self.licence.lower().startswith(UNSTATED)


class TrainingSet(BaseModel):
    """A set that a model was trained on, so that benchmarks know which of their sequences the model has seen.

    Sequences are named for the official data sets only, validation scenes included.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    layout: Literal["phototour", "hpatches", "romepatches", ""] = Field(
        default="", description="official data set that it is, or is a part of"
    )
    split: str = Field(default="", description="split of the official data set")
    sequences: list[str] = Field(default_factory=list, description="names of the sequences trained on")


class Origin(BaseModel):
    """Provenance of a model: licence, training data, recipe, measured figures."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    licence: str = ""
    data: str = Field(default="", description="training data")
    training_sets: list[TrainingSet] = Field(default_factory=list, description="sets that it was trained on, if known")
    sources: list[DataSource] = Field(default_factory=list, description="sources of the training photos, if known")
    recipe: dict[str, Any] = Field(default_factory=dict, description="keys and values of the training recipe")
    figures: dict[str, float] = Field(default_factory=dict, description="measured values, by metric and benchmark")
    notes: dict[str, Any] = Field(default_factory=dict, description="command, versions, frames, limits")

    @property
    def photos_without_licence(self) -> str:
        """How many of the training photos state no licence; empty if all do."""
        photos = sum(source.photos for source in self.sources)
        unstated = sum(source.photos for source in self.sources if not source.states_licence)
        state = inflect(unstated, "states", "state")
        return f"{unstated:,} of the {photos:,} training photos {state} no licence" if unstated else ""

    @property
    def licence_with_photos(self) -> str:
        """The licence of the weights, and how many of the training photos state none."""
        return "; ".join(filter(None, (self.licence, self.photos_without_licence)))


def _check_detector(name: str) -> str:
    if name not in DETECTOR_NAMES:
        raise ValueError(f"{name} is not a detector; choose from {', '.join(DETECTOR_NAMES)}")
    return name


DetectorName = Annotated[str, AfterValidator(_check_detector)]
Extent = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Range = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Card(BaseModel):
    """Content of a model card."""

    model_config = ConfigDict(extra="forbid")

    name: str
    kind: Kind
    architecture: Architecture
    input_size: int = Field(gt=0, description="side in pixels of the patches the network reads")
    extent: Extent = Field(description="extent in training: half the patch side in units of the frame's scale")
    extents: dict[DetectorName, Extent] = Field(
        default_factory=dict,
        description="best extent per detector; that of DoG serves detectors that were not measured",
    )
    prefixes: list[Annotated[int, Field(gt=0)]] = Field(
        default_factory=list, description="lengths of the prefixes that were trained as descriptors"
    )
    activation_ranges: list[Range] = Field(
        default_factory=list, description="largest magnitude of the input of each layer in int8, from `doap calibrate`"
    )
    sha256: str = Field(description="SHA-256 of the weights file")
    origin: Origin = Origin()

    @field_validator("architecture")
    @classmethod
    def _check_bits(cls, architecture: Architecture, info: ValidationInfo) -> Architecture:
        if info.data.get("kind") == "binary" and architecture.dimensions % 8:
            raise ValueError(f"the bits of a binary descriptor must be a multiple of 8, not {architecture.dimensions}")
        return architecture

    def truncate(self, dimensions: int) -> Self:
        """Return the card of the model of a prefix, see `Descriptor.truncate`; `sha256` stays that of the whole model.

        Raises:
            DoapError: If the length was not trained.
        """
        whole = self.architecture.dimensions
        if dimensions == whole:
            return self
        check_prefix(self.name, dimensions, whole, self.prefixes)
        architecture = self.architecture.model_copy(update={"dimensions": dimensions})
        fewer = _count_layers(self.architecture) - _count_layers(architecture)
        step = f"first {dimensions} of {whole} dimensions or bits of {self.name}, SHA-256 {self.sha256}"
        return self.model_copy(
            update={
                "name": prefix_name(self.name, dimensions),
                "architecture": architecture,
                "prefixes": [prefix for prefix in self.prefixes if prefix < dimensions],
                # Ranges of inputs, which stay the same; two last layers may have become one.
                "activation_ranges": self.activation_ranges[: len(self.activation_ranges) - fewer],
                "origin": add_conversion(self.origin, step),
            }
        )


def _count_layers(architecture: Architecture) -> int:
    return sum(name.endswith("weight") for name in shapes_of(architecture))


def add_conversion(origin: Origin, step: str) -> Origin:
    """Return the provenance of a converted model: without figures, which are not its own, and with a note."""
    history = "; ".join([*([origin.notes["conversion"]] if "conversion" in origin.notes else []), step])
    return origin.model_copy(update={"figures": {}, "notes": {**origin.notes, "conversion": history}})


def inherit_origin(base: Origin, origin: Origin) -> Origin:
    """Return the provenance of a model whose training started from another model.

    Its weights still depend on everything that the base model was trained on; figures of the base are not its own.

    Args:
        base: Provenance of the model that the training started from.
        origin: Provenance of the training; its training sets include those of the base.
    """
    inherited = {key: base.notes[key] for key in INHERITED_NOTES if key in base.notes}
    return origin.model_copy(
        update={
            "licence": base.licence,
            "data": "; ".join(filter(None, (base.data, origin.data))),
            "sources": [*base.sources, *origin.sources],
            "notes": {**inherited, **origin.notes},
        }
    )


def card_path(weights: Path) -> Path:
    """Return the path of the card of a .safetensors file: `NAME.json`, or `config.json` in a folder of a model hub."""
    own, shared = weights.with_suffix(".json"), weights.with_name(HUB_CARD)
    return shared if weights.name == HUB_WEIGHTS and shared.exists() and not own.exists() else own


def read_card(weights: Path) -> Card:
    """Read the card beside a .safetensors file.

    Raises:
        DoapError: If the card is missing or invalid.
    """
    path = card_path(weights)
    try:
        return Card.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DoapError(
            f"{weights}: its card {path.name} cannot be read ({error.strerror}); copy it to the same folder"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"])) or "the file"
        raise DoapError(f"{path}: not a model card ({location}: {first['msg']})") from error


def write_card(weights: Path, card: Card) -> None:
    """Write the card beside a .safetensors file."""
    write_text(card_path(weights), json.dumps(card.model_dump(), indent=1) + "\n")
