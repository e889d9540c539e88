"""The ranked list as HTML: facts, the query patch and the first ranks."""

import base64
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from numpy.typing import NDArray

from doap.app.rank.ranking import RankedList

SHOWN = 12  # ranks on the page
TEMPLATES = Environment(
    loader=FileSystemLoader([Path(__file__).parent, Path(__file__).parent.parent / "learn"]),
    autoescape=True,
    undefined=StrictUndefined,
)
"""Templates of both tabs; they escape all values."""

Fact = tuple[str, str, str]
"""Term, value and remark."""


@dataclass(frozen=True)
class Entry:
    """One rank of a list on the page.

    Attributes:
        rank: Rank, or the range of ranks of a tie.
        distance: Distance with its unit.
        label: "correct", "wrong" or "unknown".
        source: The patch as a data URI.
    """

    rank: str
    distance: str
    label: str
    source: str


def render_list(
    ranked: RankedList,
    positions: list[int],
    query: NDArray[np.uint8],
    patches: NDArray[np.uint8],
    facts: list[Fact],
    notes: list[str],
) -> str:
    """Render a ranked list as HTML; all texts are escaped.

    Args:
        ranked: The list.
        positions: Positions in the list of the patches that are shown, see `shown_positions`.
        query: (S, S) patch of the query.
        patches: (P, S, S) patches at these positions.
        facts: Figures above the patches.
        notes: Sentences below them.
    """
    entries = [
        Entry(format_rank(ranked, position), format_distance(ranked, position), _label(ranked, position), encode(patch))
        for position, patch in zip(positions, patches, strict=True)
    ]
    return TEMPLATES.get_template("list.html.j2").render(query=encode(query), entries=entries, facts=facts, notes=notes)


def shown_positions(ranked: RankedList) -> list[int]:
    """Return the first positions of a list, and that of the first correct item if it is further down."""
    positions = list(range(min(SHOWN, len(ranked))))
    if ranked.correct is not None and ranked.correct.any() and not ranked.correct[:SHOWN].any():
        positions.append(int(ranked.correct.argmax()))
    return positions


def list_facts(ranked: RankedList) -> list[Fact]:
    """Return AP and the rank of the correct item, and what else one needs to read them."""
    if ranked.correct is None:
        return [("Average Precision", "unknown", "the geometry is unknown")]
    if ranked.average_precision is None or ranked.first_correct is None:
        return [("Average Precision", "undefined", "no keypoint of the other picture shows this point")]
    best, worst = ranked.first_correct
    tied = "" if best == worst else "tied with wrong ones"
    rank = str(best) if best == worst else f"{best} to {worst}"
    return [
        ("Rank of the correct patch", rank, tied or f"of {len(ranked):,}"),
        ("Average Precision", f"{ranked.average_precision:.3f}", ""),
        ("Correct patches in the list", str(ranked.positives), f"of {len(ranked):,}"),
    ]


def format_rank(ranked: RankedList, position: int) -> str:
    """Return the rank of an item, or the range of ranks of a tie."""
    first, last = ranked.rank_range(position)
    return str(first) if first == last else f"{first}-{last}"


def format_distance(ranked: RankedList, position: int) -> str:
    """Return a distance, in bits for binary descriptors."""
    distance = ranked.distances[position]
    return f"{distance:.3f}" if ranked.bits is None else f"{int(distance)} bits"


def encode(patch: NDArray[np.uint8]) -> str:
    """Encode a grey patch as a data URI of a PNG file."""
    _, content = cv2.imencode(".png", patch)
    return f"data:image/png;base64,{base64.b64encode(content.tobytes()).decode('ascii')}"


def _label(ranked: RankedList, position: int) -> str:
    if ranked.correct is None:
        return "unknown"
    return "correct" if ranked.correct[position] else "wrong"
