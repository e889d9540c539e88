"""The results of matching image pairs as tables: by sequence, means with intervals, shares, and paired tests."""

from collections.abc import Sequence

from doap.evaluation.harness.result import Result, Score
from doap.evaluation.harness.table import Row, Table, number
from doap.evaluation.image_pairs.oxford import PAPER_SEQUENCES, by_sequence, mean_of_six
from doap.evaluation.image_pairs.scoring import PIXELS
from doap.evaluation.metrics.significance import LEVEL, RESAMPLES, clusters_of, compare, summarise

# What is summed up with intervals and tested, and how it is called and written.
MEASURES = {"ap": ("mAP %", ".1f"), "matching score": ("matching score %", ".1f"), "inliers": ("inliers", ".0f")}
SHARES = {**{f"right within {pixels} px": f"{pixels} px" for pixels in PIXELS}, "geometry right": "right geometry"}
SURE = 0.05
FEWEST_CLUSTERS = 6  # fewer can never give a p under 0.05: two of the 2⁵ signs are already 0.06


def oxford_tables(result: Result) -> list[Table]:
    """AP by sequence, means, and the best against the others."""
    return [sequence_table(result), means_table(result), *tests_tables(result)]


def pairs_tables(result: Result) -> list[Table]:
    """Means, shares of right matches and geometries, and the best against the others."""
    return [means_table(result), shares_table(result), *tests_tables(result)]


def compare_all(scores: Sequence[Score]) -> list[Score]:
    """The paired tests of every two descriptors, as a result keeps them."""
    return compare(scores, list(MEASURES))


def sequence_table(result: Result) -> Table:
    """AP by sequence, best mean first; the paper's six marked."""
    table = by_sequence(result.scores)
    sequences = list(next(iter(table.values())))
    six = set(PAPER_SEQUENCES) <= set(sequences)
    rows = []
    for name in _best_first(result):
        own = [table[name][sequence] for sequence in sequences]
        means = [sum(own) / len(own), *([mean_of_six(table[name])] if six else [])]
        rows.append(Row((name, *(number(value, 1) for value in [*own, *means]))))
    columns = ["descriptor", *(f"{name}*" if name in PAPER_SEQUENCES else name for name in sequences), "mean"]
    return Table(
        (*columns, *(["mean of *"] if six else [])),
        tuple(rows),
        title="AP %, mean over the pairs of a sequence",
        note="* the paper's six, by our reading: it names graf and boat" if six else "",
        better="more",
    )


def means_table(result: Result) -> Table:
    """Means over pairs with their intervals, best first, and how those were found."""
    scores = result.scores
    rows = summarise(scores, list(MEASURES))
    clusters = len(set(clusters_of(scores)))
    pairs = len({(row["sequence"], row["pair"]) for row in scores})
    what = f"{clusters} sequences of {pairs} pairs" if clusters < pairs else f"{pairs} pairs"
    few = "; of so few, they are too narrow" if clusters < FEWEST_CLUSTERS else ""
    return Table(
        ("descriptor", *(name for name, _ in MEASURES.values())),
        tuple(Row((str(row["descriptor"]), *(_with_interval(row, column) for column in MEASURES))) for row in rows),
        title="Means over pairs",
        note=f"{LEVEL} % intervals: {what} resampled {RESAMPLES:,} times{few}" if clusters > 1 else "",
    )


def shares_table(result: Result) -> Table:
    """Right mutual matches and right geometries, in percent."""
    means = {str(row["descriptor"]): row for row in summarise(result.scores, list(SHARES))}
    rows = tuple(Row((name, *(_plain(means[name][column]) for column in SHARES))) for name in _best_first(result))
    title = "Mutual matches that are right, %, and pairs whose geometry is"
    return Table(("descriptor", *SHARES.values()), rows, title=title, better="more")


def tests_tables(result: Result) -> list[Table]:
    """Whether the best differs from each other descriptor, by the first measure with values; none of one descriptor."""
    tests, (best, *others) = result.comparisons, _best_first(result)
    if not tests:
        return []
    measure = tests[0]["measure"]
    rows = []
    for other in others:
        (test,) = (t for t in tests if t["measure"] == measure and {t["a"], t["b"]} == {best, other})
        sign = 1 if test["a"] == best else -1
        ends = sorted(sign * float(end) for end in (test["low"], test["high"]) if end is not None)
        p = float(test["p"] or 0)
        apart = f"{sign * float(test['a - b'] or 0):+.1f}" + _interval(ends, "+.1f")
        rows.append(Row((other, apart, f"{p:.3f}", "better" if p < SURE else "not sure")))
    clusters = int(tests[0]["clusters"] or 0)
    few = f"{clusters} of {FEWEST_CLUSTERS} sequences or pairs that it takes to be sure of a difference"
    return [
        Table(
            ("descriptor", "difference", "p", f"{best} is"),
            tuple(rows),
            title=f"{best} against the others, {MEASURES[str(measure)][0]}",
            note=few if clusters < FEWEST_CLUSTERS else "",
        )
    ]


def _best_first(result: Result) -> list[str]:
    return [str(row["descriptor"]) for row in summarise(result.scores, list(MEASURES))]


def _with_interval(row: Score, column: str) -> str:
    if (value := row[column]) is None:
        return "-"
    form = MEASURES[column][1]
    ends = [float(end) for end in (row[f"{column} low"], row[f"{column} high"]) if end is not None]
    return f"{value:{form}}" + _interval(ends, form)


def _interval(ends: Sequence[float], form: str) -> str:
    """Both ends in brackets; nothing where there are none."""
    return f" [{', '.join(f'{end:{form}}' for end in ends)}]" if ends else ""


def _plain(value: str | int | float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
