"""What the Rank tab shows of one query: two pictures, the list and the precision curve."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from doap.app.rank import drawing
from doap.app.rank.curves import Line, render_plot
from doap.app.rank.drawing import Picture
from doap.app.rank.list_html import Fact, list_facts, render_list, shown_positions
from doap.app.rank.methods import cut_patches, extent_of, rank_pair
from doap.app.rank.pairs import CORRECT_DEGREES, RankPair
from doap.app.rank.ranking import RankedList
from doap.errors import inflect
from doap.evaluation.image_pairs.warped import CORRECT_PIXELS, CORRECT_SCALE

CURVE_RANKS = 20  # and some more if the first correct patch is further down
RULE = (
    f"A patch is correct if its keypoint lies within {CORRECT_PIXELS:g} pixels of the cross, its scale within a factor "
    f"of {CORRECT_SCALE:g} and its angle within {CORRECT_DEGREES:g}° of what the homography gives."
)


@dataclass(frozen=True, eq=False)
class QueryView:
    """What the page shows of one query.

    Attributes:
        first: The first picture with the query.
        second: The second picture with the first ranks.
        html: Facts, query patch and ranked patches.
        curve: Precision at the first ranks; empty if nothing is known to be correct.
    """

    first: Picture
    second: Picture
    html: str
    curve: str


def view_query(pair: RankPair, method: str, query: int) -> QueryView:
    """Rank the patches of the second picture for a query, and draw everything.

    Raises:
        DoapError: If there is no such method or query.
    """
    ranked = rank_pair(pair, method, query)
    patch = cut_patches(pair.first.image, pair.first.frames[query : query + 1], method)[0]
    positions = shown_positions(ranked)
    patches = cut_patches(pair.second.image, pair.second.frames[ranked.items[positions]], method)
    facts = [*list_facts(ranked), *_mean_fact(pair, method)]
    notes = [pair.geometry] if pair.correct is None else [RULE, pair.geometry]
    if ranked.bits is not None:
        notes.insert(0, "Equal numbers of bits are ties: AP is the mean over all orders of tied patches.")
    return QueryView(
        drawing.draw_query(pair, query, extent_of(method)),
        drawing.draw_ranks(pair, query, ranked),
        render_list(ranked, positions, patch, patches, facts, notes),
        precision_curve(ranked),
    )


def precision_curve(ranked: RankedList) -> str:
    """Render the precision at the first ranks; empty without a correct item."""
    if ranked.first_correct is None:
        return ""
    count = min(max(CURVE_RANKS, 2 * ranked.first_correct[1]), len(ranked))
    points = [(float(rank), float(value)) for rank, value in enumerate(ranked.precisions[:count], 1)]
    title = "Precision at each rank: the share of correct patches up to it"
    return render_plot(title, [Line("precision", points)], "rank", (1, count))


def hardest_query(pair: RankPair, method: str) -> int:
    """Return the query with the lowest AP, the first of equals; 0 if AP is unknown."""
    precisions = _all_precisions(pair, method)
    return int(np.nanargmin(precisions)) if np.isfinite(precisions).any() else 0


def random_query(pair: RankPair, random: np.random.Generator) -> int:
    """Return a random query, with a correct patch in the other picture if there is one."""
    if pair.correct is None or not pair.correct.any():
        return int(random.integers(len(pair.first.frames)))
    return int(random.choice(np.flatnonzero(pair.correct.any(1))))


def _mean_fact(pair: RankPair, method: str) -> list[Fact]:
    precisions = _all_precisions(pair, method)
    known = precisions[np.isfinite(precisions)]
    queries = inflect(len(known), "query", "queries")
    return [("Mean over all queries (mAP)", f"{known.mean():.3f}", f"{len(known)} {queries}")] if len(known) else []


def _all_precisions(pair: RankPair, method: str) -> NDArray[np.float64]:
    """Return the AP of every query, (N,); NaN without a correct patch."""
    if method not in pair.precisions:
        values = np.full(len(pair.first.frames), np.nan)
        queries = [] if pair.correct is None else np.flatnonzero(pair.correct.any(1)).tolist()
        for query in queries:
            values[query] = rank_pair(pair, method, query).average_precision
        pair.precisions[method] = values
    return pair.precisions[method]
