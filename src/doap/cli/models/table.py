"""`doap models`."""

from typing import Annotated

import typer

from doap.cli.console import say
from doap.cli.table import print_table
from doap.networks import DEFAULT_MODEL

EXAMPLE = f"Example: doap models {DEFAULT_MODEL}"
MIN_WIDTH = 12  # of the column of headings, the same for all models but those with longer headings


def models(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Model, or path of its weights; NAME@64 is a prefix of it.")
    ] = None,
) -> None:
    """List the models that ship with doap, or print the card of one.

    The extent is half a patch's side in units of its frame's scale. An extent named with a detector is the best for
    that detector and used by default. "others" is the extent of all other detectors: that of DoG, or that of the
    training if DoG was not measured.
    """
    from doap.evaluation.harness.cards import card_facts, models_table
    from doap.networks.registry import find_card, list_models, load

    if name is None:
        print_table(models_table(list_models()))
    elif card := find_card(name):
        say(card.name, style="bold")
        facts = card_facts(name)
        width = max(MIN_WIDTH, *(len(heading) + 1 for heading in facts))
        for heading, lines in facts.items():
            for number, line in enumerate(lines):
                say(f"  {'' if number else heading:<{width}}{line}")
    else:
        model = load(name, fast=False)  # raises for unknown weights
        say(f"{name}: a baseline without a card ({model.kind}, {model.bytes} bytes, extent {model.extent:g})")
