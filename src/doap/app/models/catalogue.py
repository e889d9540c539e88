"""What the Models tab shows: facts and figures of the shipped models, read from their cards."""

import re
from dataclasses import dataclass
from functools import lru_cache

from doap.evaluation.harness.cards import count_parameters, format_extents
from doap.networks.card import read_card
from doap.networks.registry import find_weights, list_models, load
from doap.types import Kind

EXTENT = re.compile(r" at extent [0-9.]+$")


@dataclass(frozen=True)
class ModelEntry:
    """A shipped model.

    Attributes:
        name: Name of the model.
        kind: Kind of its descriptors.
        bytes: Bytes per descriptor.
        dimensions: Dimensions or bits.
        parameters: Number of learned parameters.
        file_bytes: Size of the weights.
        extents: Extents by detector.
        licence: Licence of the weights.
        figures: Measured values on its card, by metric and benchmark; without the extent, which differs by model.
    """

    name: str
    kind: Kind
    bytes: int
    dimensions: int
    parameters: int
    file_bytes: int
    extents: str
    licence: str
    figures: dict[str, float]


@lru_cache(1)
def list_entries() -> tuple[ModelEntry, ...]:
    """Return all shipped models."""
    return tuple(map(_read_entry, list_models()))


def list_figures() -> list[str]:
    """Return the metrics on the cards, those of most models first."""
    names = [name for entry in list_entries() for name in entry.figures]
    return sorted(dict.fromkeys(names), key=lambda name: -names.count(name))


def _read_entry(name: str) -> ModelEntry:
    card, model = read_card(find_weights(name)), load(name, fast=False)
    return ModelEntry(
        name,
        card.kind,
        model.bytes,
        card.architecture.dimensions,
        count_parameters(model),
        find_weights(name).stat().st_size,
        format_extents(card),
        card.origin.licence,
        {EXTENT.sub("", figure): value for figure, value in card.origin.figures.items()},
    )
