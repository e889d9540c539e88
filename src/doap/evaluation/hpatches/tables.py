"""Tables of HPatches: means as the official code computes them, by the official and by the tie-aware rule."""

from collections.abc import Mapping

import numpy as np

from doap.datasets.official.hpatches import NOISES
from doap.evaluation.harness.result import Result
from doap.evaluation.harness.table import Row, Table, number
from doap.evaluation.harness.training_sets import mark_note, marked_name
from doap.evaluation.hpatches.retrieval import MATLAB_POOL, OFFICIAL_POOLS

Conditions = Mapping[str, str | int]
"""Required values by column of the scores."""

# The score by which descriptors are compared in a task.
HEADLINES: dict[str, Conditions] = {
    "verification": {"task": "verification", "balance": "imbalanced"},
    "matching": {"task": "matching", "condition": "all"},
    "retrieval": {"task": "retrieval"},
}
BALANCED: Conditions = {"task": "verification", "balance": "balanced"}
NOISE_COLUMNS: dict[str, Conditions] = {noise: {"noise": noise} for noise in NOISES[1:]}


def mean_score(result: Result, *conditions: Conditions) -> float | None:
    """Return the mean of the scores that meet all conditions, or None if there are none.

    A later condition on a column replaces an earlier one. For retrieval, unless a pool is requested, the mean is over
    the official pools that were filled, as in the official figure, or over the only pool if none was.
    """
    required = {column: value for condition in conditions for column, value in condition.items()}
    selected = [score for score in result.scores if all(score[column] == value for column, value in required.items())]
    pools = {score["pool"] for score in selected} - {None}
    if pools:
        counted = pools & set(OFFICIAL_POOLS) or pools
        selected = [score for score in selected if "pool" in required or score["pool"] in counted]
    values = [float(score["value"] or 0) for score in selected]
    return float(np.mean(values)) if values else None


def hpatches_tables(result: Result) -> list[Table]:
    """Return one table per task, and one for balanced verification; tasks without scores are left out."""
    negatives: dict[str, Conditions] = {kind: {"condition": kind} for kind in ("intra", "inter")}
    kinds: dict[str, Conditions] = {"illum": {"condition": "illumination"}, "view": {"condition": "viewpoint"}}
    largest = max((int(score["pool"]) for score in result.scores if score["pool"]), default=0)
    pools: dict[str, Conditions] = {f"{pool:,}": {"pool": pool} for pool in sorted({MATLAB_POOL, largest})}
    pairs, searches = (result.settings.get(f"{task} lists") for task in ("verification", "retrieval"))
    tables = [
        _table(result, "Verification, imbalanced, mAP %", HEADLINES["verification"], negatives),
        _table(result, "Verification, balanced, ROC area %", BALANCED, negatives, f"pairs: {pairs}" if pairs else ""),
        _table(result, "Matching, mAP %", HEADLINES["matching"], kinds),
        _table(
            result,
            "Retrieval, mAP %, mean over pools, then in pools of one size",
            HEADLINES["retrieval"],
            pools,
            f"queries and distractors: {searches}" if searches else "",
        ),
    ]
    return [table for table in tables if table.rows]


def _table(
    result: Result, title: str, headline: Conditions, further: Mapping[str, Conditions], note: str = ""
) -> Table:
    """Return two rows per descriptor, by the official and the tie-aware rule: each noise, the mean, further means.

    The best by the official rule comes first. Columns without values are left out.
    """
    columns: dict[str, Conditions] = {**NOISE_COLUMNS, "mean": {}, **further}
    means: dict[tuple[str, str], dict[str, float | None]] = {}
    for score in result.scores:
        key = str(score["descriptor"]), str(score["rule"])
        if score["task"] == headline["task"] and key not in means:
            own: Conditions = {"descriptor": key[0], "rule": key[1], **headline}
            means[key] = {name: mean_score(result, own, condition) for name, condition in columns.items()}
    filled = [name for name in columns if any(row[name] is not None for row in means.values())]
    best = sorted(means, key=lambda key: (-(means[key[0], "official"]["mean"] or 0), key[0], key[1] == "tie-aware"))
    rows = tuple(
        Row((marked_name(result, name), rule, *(number(means[name, rule][column], 2) for column in filled)))
        for name, rule in best
    )
    note = "; ".join(filter(None, (note, mark_note(result, len(result.settings.get("sequences", ()))))))
    return Table(("descriptor", "rule", *filled), rows, text_columns=2, note=note, better="more", title=title)
