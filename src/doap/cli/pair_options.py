"""What the verbs that match real images share: options, tables of means with intervals, and tests."""

from collections.abc import Sequence
from typing import Annotated

import typer

from doap.cli.console import say
from doap.cli.eval_options import show_table
from doap.errors import DoapError
from doap.evaluation.result import Score
from doap.evaluation.statistics import LEVEL, RESAMPLES, clusters_of, compare, summarise
from doap.photos.detectors import DETECTORS

MEASURES = {"ap": "mAP %", "matching score": "matching score %", "inliers": "inliers"}
SURE = 0.05
FEWEST_CLUSTERS = 6  # fewer can never give a p under 0.05: two of the 2⁵ signs are already 0.06

Detector = Annotated[str, typer.Option(metavar="NAME", help=f"What finds the keypoints: {', '.join(DETECTORS)}.")]
Extent = Annotated[
    str,
    typer.Option(
        metavar="FACTOR|own",
        help="Half a patch's side in units of the keypoint's scale, the same for all descriptors; "
        "own: each at its own, SIFT in the image.",
    ),
]
Keypoints = Annotated[int, typer.Option(min=1, help="Strongest keypoints of each image.")]


def check_detector(name: str) -> None:
    """Refuse a detector that does not exist."""
    if name not in DETECTORS:
        raise DoapError(f"--detector: {name} is none of {', '.join(DETECTORS)}")


def extent_from(text: str) -> float | None:
    """What `--extent` asks for; None is each descriptor's own."""
    if text == "own":
        return None
    try:
        extent = float(text)
    except ValueError:
        extent = 0.0
    if not 0 < extent <= 1000:
        raise DoapError(f"--extent: a factor over 0, or own; not {text}")
    return extent


def show_means(scores: Sequence[Score]) -> list[Score]:
    """Print means over pairs with their intervals, best first, and how those were found; gives the rows."""
    rows = summarise(scores, list(MEASURES))
    shown = [[str(row["descriptor"]), *(_with_interval(row, column) for column in MEASURES)] for row in rows]
    show_table("Means over pairs", ["descriptor", *MEASURES.values()], shown)
    clusters = len(set(clusters_of(scores)))
    pairs = len({(row["sequence"], row["pair"]) for row in scores})
    what = f"{clusters} sequences of {pairs} pairs" if clusters < pairs else f"{pairs} pairs"
    few = "; of so few, they are too narrow" if clusters < FEWEST_CLUSTERS else ""
    if clusters > 1:
        say(f"{LEVEL} % intervals: {what} resampled {RESAMPLES:,} times{few}")
    return rows


def show_tests(scores: Sequence[Score], rows: Sequence[Score]) -> list[Score]:
    """Print whether the best differs from each other descriptor, by the first measure with values; gives all tests."""
    tests = compare(scores, list(MEASURES))
    if not tests:
        return tests
    measure, best = tests[0]["measure"], rows[0]["descriptor"]
    shown = []
    for row in rows[1:]:
        other = row["descriptor"]
        (test,) = (t for t in tests if t["measure"] == measure and {t["a"], t["b"]} == {best, other})
        sign = 1 if test["a"] == best else -1
        ends = sorted(sign * float(end) for end in (test["low"], test["high"]) if end is not None)
        p = float(test["p"] or 0)
        shown.append(
            [
                str(other),
                f"{sign * float(test['a - b'] or 0):+.1f}" + _interval(ends, "+.1f"),
                f"{p:.3f}",
                "better" if p < SURE else "not sure",
            ]
        )
    title = f"{best} against the others, {MEASURES[str(measure)]}"
    show_table(title, ["descriptor", "difference", "p", f"{best} is"], shown)
    clusters = int(tests[0]["clusters"] or 0)
    if clusters < FEWEST_CLUSTERS:
        say(
            f"{clusters} of {FEWEST_CLUSTERS} sequences or pairs that it takes to be sure of a difference",
            style="yellow",
        )
    return tests


def _with_interval(row: Score, column: str) -> str:
    if (value := row[column]) is None:
        return "-"
    form = ".0f" if column == "inliers" else ".1f"
    ends = [float(end) for end in (row[f"{column} low"], row[f"{column} high"]) if end is not None]
    return f"{value:{form}}" + _interval(ends, form)


def _interval(ends: Sequence[float], form: str) -> str:
    """Both ends in brackets; nothing where there are none."""
    return f" [{', '.join(f'{end:{form}}' for end in ends)}]" if ends else ""
