"""What the cards of models say, for people to read: a table of several, and all of one."""

import json
from collections.abc import Iterator, Sequence

from doap.evaluation.harness.table import Row, Table
from doap.networks.descriptor import Descriptor
from doap.networks.registry import Card, find_weights, load, read_card

MOST_FIGURES = 2  # of a model in the table


def models_table(names: Sequence[str]) -> Table:
    """What each of several models with cards is; a cell may hold several lines."""
    rows = []
    for name in names:
        card, model = read_card(find_weights(name)), load(name)
        figures = [f"{figure}: {value:g}" for figure, value in card.origin.figures.items()]
        rows.append(
            Row(
                (
                    card.name,
                    card.kind,
                    extents(card),
                    "\n".join(figures[:MOST_FIGURES]),
                    str(model.bytes),
                    f"{parameters(model):,}",
                    file_size(name),
                )
            )
        )
    return Table(("model", "kind", "extent", "figures", "bytes", "parameters", "file"), tuple(rows), words=4)


def card_facts(name: str) -> dict[str, list[str]]:
    """All that is known of a model with a card, in words: one or more lines under each heading."""
    card, model = read_card(find_weights(name)), load(name)
    architecture, origin = card.architecture, card.origin
    size = f"{architecture.dimensions} {'bits' if card.kind == 'binary' else 'dimensions'}"
    aligned = ", with a Spatial Transformer" if architecture.transformer else ""
    network = f"{architecture.network} of width {architecture.width}{aligned}; {parameters(model):,} parameters"
    facts = {
        "kind": [f"{card.kind}, {size}, {model.bytes} bytes a descriptor"],
        "network": [f"{network}; reads {card.input_size}x{card.input_size} pixels"],
        "extent": [extents(card)],
        "weights": [f"{file_size(name)}, SHA-256 {card.sha256}"],
        "licence": [origin.licence],
        "data": [origin.data],
        "photos": [f"{each.photos:,} of {each.source}: {each.licence}" for each in origin.sources],
        "recipe": [_words(origin.recipe)] if origin.recipe else [],
        "figures": [f"{figure}: {value:g}" for figure, value in origin.figures.items()],
        **{key: list(_lines(value)) for key, value in origin.notes.items()},
    }
    return {heading: lines for heading, lines in facts.items() if any(lines)}


def extents(card: Card) -> str:
    """At which extent frames are cut: by detector, and for all others."""
    by_detector = [f"{detector} {extent:g}" for detector, extent in card.extents.items()]
    return ", ".join([*by_detector, f"{'others ' if by_detector else ''}{card.extent:g}"])


def parameters(model: Descriptor) -> int:
    """How many numbers were learned."""
    return sum(parameter.numel() for parameter in model.parameters())


def file_size(name: str) -> str:
    """Of the weights of a model."""
    size = find_weights(name).stat().st_size
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"


def _lines(value: object) -> Iterator[str]:
    """A note in words: nothing for nothing, a dictionary or list on one line."""
    if isinstance(value, dict):
        yield _words(value)
    elif isinstance(value, list):
        yield ", ".join(map(str, value))
    elif value not in (None, ""):
        yield str(value)


def _words(values: dict[str, object]) -> str:
    """As they are written after --set."""
    return " ".join(f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in values.items())
