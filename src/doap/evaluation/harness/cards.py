"""Model cards as text: a table of several models, and all facts about one."""

import json
from collections.abc import Iterator, Sequence

from doap.errors import inflect
from doap.evaluation.harness.table import Row, Table
from doap.extents import best_extent
from doap.networks.card import Card, TrainingSet, read_card
from doap.networks.descriptor import Descriptor
from doap.networks.registry import find_card, find_weights, load

MAX_FIGURES = 2  # per model in the table


def models_table(names: Sequence[str]) -> Table:
    """Return a table of models with cards, one row per model; a cell may hold several lines."""
    rows = []
    for name in names:
        card, model = read_card(find_weights(name)), load(name, fast=False)
        figures = [f"{figure}: {value:g}" for figure, value in card.origin.figures.items()]
        rows.append(
            Row(
                (
                    card.name,
                    card.kind,
                    format_extents(card),
                    "\n".join(figures[:MAX_FIGURES]),
                    str(model.bytes),
                    f"{count_parameters(model):,}",
                    format_file_size(name),
                )
            )
        )
    return Table(("model", "kind", "extent", "figures", "bytes", "parameters", "file"), tuple(rows), text_columns=4)


def card_facts(name: str) -> dict[str, list[str]]:
    """Return all facts about a model with a card: one or more lines of text per heading."""
    card, model = find_card(name), load(name, fast=False)
    assert card is not None
    architecture, origin = card.architecture, card.origin
    size = f"{architecture.dimensions} {'bits' if card.kind == 'binary' else 'dimensions'}"
    transformer = ", with a Spatial Transformer" if architecture.transformer else ""
    network = f"{architecture.network} of width {architecture.width}{transformer}"
    facts = {
        "kind": [f"{card.kind}, {size}, {model.bytes} bytes per descriptor"],
        "prefixes": [", ".join(map(str, card.prefixes))],
        "network": [
            f"{network}; {count_parameters(model):,} parameters; input {card.input_size}x{card.input_size} pixels"
        ],
        "extent": [format_extents(card)],
        "weights": [f"{format_file_size(name)}, SHA-256 {card.sha256}"],
        "licence": [origin.licence_with_photos],
        "data": [origin.data],
        "trained on": [_format_training_set(data) for data in origin.training_sets if data.layout],
        "photos": [f"{source.photos:,} of {source.source}: {source.licence}" for source in origin.sources],
        "recipe": [_format_settings(origin.recipe)] if origin.recipe else [],
        "figures": [f"{figure}: {value:g}" for figure, value in origin.figures.items()],
        **{key: list(_format_note(value)) for key, value in origin.notes.items()},
    }
    return {heading: lines for heading, lines in facts.items() if any(lines)}


def format_extents(card: Card) -> str:
    """Return the extents of a model: per detector, and for all other detectors."""
    by_detector = [f"{detector} {extent:g}" for detector, extent in card.extents.items()]
    others = best_extent(card.extents, "", card.extent)
    return ", ".join([*by_detector, f"{'others ' if by_detector else ''}{others:g}"])


def count_parameters(model: Descriptor) -> int:
    """Return the number of learned parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def format_file_size(name: str) -> str:
    """Return the size of a model's weights, in MB or kB."""
    size = find_weights(name).stat().st_size
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"


def _format_training_set(data: TrainingSet) -> str:
    split = f", split {data.split}" if data.split else ""
    return f"{data.layout}{split}, {len(data.sequences)} {inflect(len(data.sequences), 'sequence')}"


def _format_note(value: object) -> Iterator[str]:
    """Yield the lines of a note: none if it is empty, one for a dictionary or list."""
    if isinstance(value, dict):
        yield _format_settings(value)
    elif isinstance(value, list):
        yield ", ".join(map(str, value))
    elif value not in (None, ""):
        yield str(value)


def _format_settings(values: dict[str, object]) -> str:
    """Return settings as they are written after --set."""
    return " ".join(f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in values.items())
