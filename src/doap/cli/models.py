"""`doap models`."""

from typing import Annotated

import typer

import doap
from doap.cli.console import say
from doap.cli.eval_options import show_table
from doap.evaluation.harness.cards import card_facts, models_table
from doap.networks.registry import DEFAULT_MODEL, find_card, load

EXAMPLE = f"Example: doap models {DEFAULT_MODEL}"


def models(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A model, or the path of its weights.")] = None,
) -> None:
    """List the models that ship with doap, or print the whole card of one.

    The extent is half a patch's side in units of its frame's scale: where a detector is named, the best for it, which
    is used unless another is asked for; the last is that of the training.
    """
    if name is None:
        show_table(models_table(doap.list_models()))
    elif card := find_card(name):
        say(card.name, style="bold")
        for heading, lines in card_facts(name).items():
            for number, line in enumerate(lines):
                say(f"  {'' if number else heading:<12}{line}")
    else:
        model = load(name)  # refuses weights that are nobody's
        say(f"{name}: a peer, which has no card ({model.kind}, {model.bytes} bytes, extent {model.extent:g})")
