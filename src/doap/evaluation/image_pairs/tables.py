"""Tables of image matching: AP by sequence, means with intervals, rates of correct matches, and paired tests."""

from collections.abc import Sequence

from doap.evaluation.harness.result import Result, Score
from doap.evaluation.harness.table import Row, Table, number
from doap.evaluation.image_pairs.scoring import PIXELS
from doap.evaluation.image_pairs.sequences import PAPER_SEQUENCES, by_sequence, mean_of_six, protocol_of
from doap.evaluation.metrics.significance import LEVEL, RESAMPLES, clusters_of, compare, summarise

# Measures that are averaged with intervals and tested: heading and number format.
# A result has those of its protocol.
MEASURES = {
    "ap": ("mAP %", ".1f"),
    "area under curve": ("area under curve %", ".1f"),
    "matching score": ("matching score %", ".1f"),
    "inliers": ("inliers", ".0f"),
}
RATES = {
    **{f"correct within {pixels} px": f"{pixels} px" for pixels in PIXELS},
    "geometry correct": "correct geometry",
}
SIGNIFICANT = 0.05
SMALLEST_P = 0.001  # smaller ones are not shown in digits
MIN_CLUSTERS = 6  # fewer can never give p < 0.05: two of the 2⁵ signs are already 0.06


def oxford_tables(result: Result) -> list[Table]:
    """Return AP by sequence, means over pairs, and the best descriptor against the others."""
    return [sequence_table(result), means_table(result), *tests_tables(result)]


def pairs_tables(result: Result) -> list[Table]:
    """Return means over pairs, rates of correct matches and geometries, and the best descriptor against the others."""
    return [means_table(result), rates_table(result), *tests_tables(result)]


def compare_all(scores: Sequence[Score]) -> list[Score]:
    """Compute the paired tests of every two descriptors, for `Result.comparisons`."""
    return compare(scores, _measures(scores))


def sequence_table(result: Result) -> Table:
    """Return AP by sequence, best mean first; the paper's six sequences are marked."""
    table = by_sequence(result.scores)
    sequences = list(next(iter(table.values())))
    has_six = set(PAPER_SEQUENCES) <= set(sequences)
    rows = []
    for name in _best_first(result):
        values = [table[name][sequence] for sequence in sequences]
        means = [sum(values) / len(values), *([mean_of_six(table[name])] if has_six else [])]
        rows.append(Row((name, *(number(value, 1) for value in [*values, *means]))))
    columns = ["descriptor", *(f"{name}*" if name in PAPER_SEQUENCES else name for name in sequences), "mean"]
    return Table(
        (*columns, *(["mean of *"] if has_six else [])),
        tuple(rows),
        title=f"AP %, mean over the pairs of a sequence, protocol {protocol_of(result)}",
        note="* the paper's six, by our reading: it names graf and boat" if has_six else "",
        better="more",
    )


def means_table(result: Result) -> Table:
    """Return means over pairs with their intervals, best first."""
    scores = result.scores
    measures = _measures(scores)
    rows = summarise(scores, measures)
    clusters = len(set(clusters_of(scores)))
    pairs = len({(row["sequence"], row["pair"]) for row in scores})
    resampled = f"{clusters} sequences of {pairs} pairs" if clusters < pairs else f"{pairs} pairs"
    few = "; of so few, they are too narrow" if clusters < MIN_CLUSTERS else ""
    return Table(
        ("descriptor", *(MEASURES[column][0] for column in measures)),
        tuple(Row((str(row["descriptor"]), *(_with_interval(row, column) for column in measures))) for row in rows),
        title="Means over pairs",
        note=f"{LEVEL} % intervals: {resampled} resampled {RESAMPLES:,} times{few}" if clusters > 1 else "",
    )


def rates_table(result: Result) -> Table:
    """Return the rates of correct mutual matches and of correct geometries, in percent."""
    means = {str(row["descriptor"]): row for row in summarise(result.scores, list(RATES))}
    rows = tuple(Row((name, *(_format(means[name][column]) for column in RATES))) for name in _best_first(result))
    title = "Correct mutual matches within a number of pixels, and pairs with a correct geometry, %"
    return Table(("descriptor", *RATES.values()), rows, title=title, better="more")


def tests_tables(result: Result) -> list[Table]:
    """Return the tests of the best descriptor against the others, by the first measure with values.

    The list is empty if there is one descriptor only.
    """
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
        difference = f"{sign * float(test['a - b'] or 0):+.1f}" + _interval(ends, "+.1f")
        verdict = "better" if p < SIGNIFICANT else "not significantly better"
        rows.append(Row((other, difference, _probability(p), verdict)))
    clusters = int(tests[0]["clusters"] or 0)
    few = f"{clusters} sequences or pairs are too few for a significant difference; {MIN_CLUSTERS} are needed"
    return [
        Table(
            ("descriptor", "difference", "p", f"{best} is"),
            tuple(rows),
            title=f"{best} against the others, {MEASURES[str(measure)][0]}",
            note=few if clusters < MIN_CLUSTERS else "",
        )
    ]


def _best_first(result: Result) -> list[str]:
    return [str(row["descriptor"]) for row in summarise(result.scores, _measures(result.scores))]


def _measures(scores: Sequence[Score]) -> list[str]:
    """Return the columns of `MEASURES` that the rows have."""
    return [column for column in MEASURES if column in scores[0]]


def _with_interval(row: Score, column: str) -> str:
    if (value := row[column]) is None:
        return "-"
    form = MEASURES[column][1]
    ends = [float(end) for end in (row[f"{column} low"], row[f"{column} high"]) if end is not None]
    return f"{value:{form}}" + _interval(ends, form)


def _probability(p: float) -> str:
    """Return a p of a test; it is never 0."""
    return f"{p:.3f}" if p >= SMALLEST_P else f"< {SMALLEST_P}"


def _interval(ends: Sequence[float], form: str) -> str:
    """Format both ends in brackets; empty if there are none."""
    return f" [{', '.join(f'{end:{form}}' for end in ends)}]" if ends else ""


def _format(value: str | int | float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
