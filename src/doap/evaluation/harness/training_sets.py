"""What methods were trained on, according to their cards, so that benchmarks can mark those that saw test sequences.

A card without the field `training_sets`, as of version 0.2, says nothing about it, and its method is not marked.
"""

from collections.abc import Sequence
from typing import Any

from doap.errors import inflect
from doap.evaluation.harness.methods import Method, PatchDescriber
from doap.evaluation.harness.result import Result
from doap.networks.card import TrainingSet
from doap.networks.registry import find_card

MARK = "‡"  # † marks quoted rows
SEEN = "trained on test sequences"


def training_sets_of(method: PatchDescriber) -> list[TrainingSet]:
    """Return the sets on the card of a method; none if it has no card, or an old one."""
    card = find_card(method.spec) if isinstance(method, Method) else None
    return card.origin.training_sets if card else []


def metadata_of(method: PatchDescriber, layout: str, test_sequences: Sequence[str]) -> dict[str, Any]:
    """Return the entry of `Result.methods`, with the number of test sequences that the method was trained on, if any.

    Args:
        method: Method of the result.
        layout: Official data set of the benchmark, as on cards.
        test_sequences: Names of the sequences tested on.
    """
    seen = {name for data in training_sets_of(method) if data.layout == layout for name in data.sequences}
    count = len(seen & set(test_sequences))
    return {**method.metadata(), **({SEEN: count} if count else {})}


def methods_that_saw(result: Result) -> dict[str, int]:
    """Return the number of test sequences that methods were trained on, by name; those with none are left out."""
    return {str(method["name"]): int(method[SEEN]) for method in result.methods if method.get(SEEN)}


def marked_name(result: Result, name: str) -> str:
    """Return the name of a method for tables and figures, marked if it was trained on test sequences."""
    return f"{name}{MARK}" if name in methods_that_saw(result) else name


def mark_note(result: Result, total: int) -> str:
    """Return the note that explains the mark; empty if no method is marked.

    Args:
        result: Result of the benchmark.
        total: Number of its test sequences.
    """
    counts = sorted(set(methods_that_saw(result).values()))
    if not counts:
        return ""
    text = " or ".join(map(str, counts))
    return f"{MARK} trained on {text} of the {total} test {inflect(total, 'sequence')}"
