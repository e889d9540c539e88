"""`doap match` for many pairs of a collection."""

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from doap.cli.console import say, step_bar
from doap.errors import DoapError, inflect

if TYPE_CHECKING:
    from doap.folders import MatchSettings, Pair
    from doap.parallel import EngineName
    from doap.types import StepProgress

Choice = tuple[Path | None, bool, int | None]
"""Values of --pairs, --exhaustive and --retrieve."""


def match_many(
    features: Path,
    output: Path,
    choice: Choice,
    settings: "MatchSettings",
    engine: "EngineName",
    workers: int | None,
    force: bool,
) -> None:
    """Match pairs of images of a collection, and print a summary."""
    from doap.folders import match_pairs

    with step_bar() as progress:
        summary = match_pairs(
            features,
            _choose_pairs(features, choice, progress),
            output,
            settings,
            engine=engine,
            workers=workers,
            force=force,
            progress=lambda done, total: progress("matching", done, total),
        )
    total = summary.matched + summary.unchanged
    earlier = f", {summary.unchanged} of them by an earlier run" if summary.unchanged else ""
    kept = inflect(summary.others, "pair in it is kept", "pairs in it are kept")
    others = f"; {summary.others} other {kept}" if summary.others else ""
    say(f"{total} {inflect(total, 'pair')} matched in {output}{earlier}{others}")
    agreeing = [count for count in summary.verified if count]
    median = f", {statistics.median(agreeing):.0f} in the median" if agreeing else ""
    have = inflect(len(agreeing), "pair has", "pairs have")
    say(f"{len(agreeing)} {have} {'verified ' if settings.geometry else ''}matches{median}")


def _choose_pairs(features: Path, choice: Choice, progress: "StepProgress") -> "list[Pair]":
    """Return the pairs that the options ask for.

    Raises:
        DoapError: If not exactly one of the options is given.
    """
    from doap.folders import FeatureCollection, all_pairs, read_pairs, retrieve_pairs

    pairs, exhaustive, retrieve = choice
    if (pairs is not None) + exhaustive + (retrieve is not None) != 1:
        raise DoapError("choose one of --pairs, --exhaustive and --retrieve")
    if retrieve is not None:
        return retrieve_pairs(features, retrieve, progress=lambda done, total: progress("retrieving", done, total))
    names = FeatureCollection(features).names
    return all_pairs(names) if pairs is None else read_pairs(pairs, names)
