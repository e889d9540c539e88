"""The scores of HPatches as tables: means by the official rule as its code takes them, and by the fair one."""

from collections.abc import Mapping

import numpy as np

from doap.datasets.official.hpatches import NOISES
from doap.evaluation.harness.result import Result
from doap.evaluation.harness.table import Row, Table, number
from doap.evaluation.hpatches.retrieval import MATLAB_POOL, OFFICIAL_POOLS

Conditions = Mapping[str, str | int]

# The one figure by which descriptors are compared in a task.
HEADLINES: dict[str, Conditions] = {
    "verification": {"task": "verification", "balance": "imbalanced"},
    "matching": {"task": "matching", "condition": "all"},
    "retrieval": {"task": "retrieval"},
}
BALANCED: Conditions = {"task": "verification", "balance": "balanced"}
NOISE: dict[str, Conditions] = {noise: {"noise": noise} for noise in NOISES[1:]}


def mean_score(result: Result, *conditions: Conditions) -> float | None:
    """The mean of the scores that meet all conditions, by column, a later one in place of an earlier; None of none.

    Of retrieval, unless a pool is asked for, the mean over the official pools that were filled, as in the official
    figure; over the pool of all where none was.
    """
    wanted = {key: value for each in conditions for key, value in each.items()}
    chosen = [score for score in result.scores if all(score[key] == value for key, value in wanted.items())]
    pools = {score["pool"] for score in chosen} - {None}
    if pools:
        counted = pools & set(OFFICIAL_POOLS) or pools
        chosen = [score for score in chosen if "pool" in wanted or score["pool"] in counted]
    values = [float(score["value"] or 0) for score in chosen]
    return float(np.mean(values)) if values else None


def hpatches_tables(result: Result) -> list[Table]:
    """A table a task, and one more for balanced verification; tasks without scores are left out."""
    negatives: dict[str, Conditions] = {kind: {"condition": kind} for kind in ("intra", "inter")}
    kinds: dict[str, Conditions] = {"illum": {"condition": "illumination"}, "view": {"condition": "viewpoint"}}
    largest = max((int(score["pool"]) for score in result.scores if score["pool"]), default=0)
    pools: dict[str, Conditions] = {f"{pool:,}": {"pool": pool} for pool in sorted({MATLAB_POOL, largest})}
    made = [
        _table(result, "Verification, imbalanced, mAP %", HEADLINES["verification"], negatives),
        _table(result, "Verification, balanced, ROC area %", BALANCED, negatives),
        _table(result, "Matching, mAP %", HEADLINES["matching"], kinds),
        _table(result, "Retrieval, mAP %, mean over pools, then in pools of one size", HEADLINES["retrieval"], pools),
    ]
    return [table for table in made if table.rows]


def _table(result: Result, title: str, asked: Conditions, more: Mapping[str, Conditions]) -> Table:
    """Two rows a descriptor, by the official rule and by the fair one: at each noise, the mean, further means.

    The best by the official rule comes first. Columns that nothing fills are left out.
    """
    columns: dict[str, Conditions] = {**NOISE, "mean": {}, **more}
    means: dict[tuple[str, str], dict[str, float | None]] = {}
    for score in result.scores:
        key = str(score["descriptor"]), str(score["rule"])
        if score["task"] == asked["task"] and key not in means:
            own: Conditions = {"descriptor": key[0], "rule": key[1], **asked}
            means[key] = {name: mean_score(result, own, chosen) for name, chosen in columns.items()}
    filled = [name for name in columns if any(row[name] is not None for row in means.values())]
    best = sorted(means, key=lambda key: (-(means[key[0], "official"]["mean"] or 0), key[0], key[1] == "fair"))
    rows = tuple(Row((*key, *(number(means[key][name], 2) for name in filled))) for key in best)
    return Table(("descriptor", "rule", *filled), rows, words=2, better="more", title=title)
