"""Draw the mAP of descriptors against their size in bytes; the lengths of a nested model are one line.

    doap eval oxford nested nested@64 nested@32 --data oxford/ --json nested.json
    python tools/bytes_curve.py nested.json docs/results/oxford-dog.json -o docs/images/bytes.png

Takes results of `doap eval hpatches` and `doap eval oxford`, with one panel per benchmark. Results of one benchmark are
drawn together: they must be of the same data and settings.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from doap.errors import DoapError
from doap.evaluation.harness.bars import colours_of
from doap.evaluation.harness.result import Result, read_result
from doap.evaluation.hpatches.tables import HEADLINES, mean_score
from doap.evaluation.image_pairs.sequences import by_sequence
from doap.files import check_figure_format, write_figure
from doap.networks import split_length

HEIGHT = 6.0  # inches
LABEL_POINTS = 8  # height of a name
IGNORED_SETTINGS = ("data", "left out")  # where the data was, not what it was


class Point(NamedTuple):
    """A descriptor: its name, its size in bytes and its mAP in percent."""

    name: str
    bytes: int
    precision: float


def hpatches_score(result: Result, name: str) -> float:
    """Return the mAP of matching by the official rule."""
    score = mean_score(result, {"descriptor": name}, HEADLINES["matching"], {"rule": "official"})
    if score is None:
        raise DoapError(f"{name}: the result of HPatches has no task matching; evaluate it with all tasks")
    return score


def oxford_score(result: Result, name: str) -> float:
    """Return the mean of the sequences' mAP."""
    return float(np.mean(list(by_sequence(result.scores)[name].values())))


SCORES: Mapping[str, tuple[str, Callable[[Result, str], float]]] = {
    "hpatches": ("HPatches, matching", hpatches_score),
    "oxford": ("Oxford, mean of the sequences", oxford_score),
}


def read_points(paths: Sequence[Path]) -> dict[str, list[Point]]:
    """Return the descriptors of results by benchmark; of one that occurs several times, the first.

    Raises:
        DoapError: If a file is not a result of these benchmarks, or two differ in their settings.
    """
    points: dict[str, dict[str, Point]] = {}
    settings: dict[str, dict[str, Any]] = {}
    for path in paths:
        result = read_result(path)
        if result.benchmark not in SCORES:
            raise DoapError(f"{path}: a result of {result.benchmark}, not of {' or '.join(SCORES)}")
        own = {name: value for name, value in result.settings.items() if name not in IGNORED_SETTINGS}
        if settings.setdefault(result.benchmark, own) != own:
            raise DoapError(f"{path}: of other settings than the result of {result.benchmark} before it")
        title, score = SCORES[result.benchmark]
        known = points.setdefault(title, {})
        for method in result.methods:
            name = str(method["name"])
            known.setdefault(name, Point(name, int(method["bytes"]), score(result, name)))
    return {title: list(known.values()) for title, known in points.items()}


def model_of(point: Point) -> str:
    """Return the name of the model that a descriptor is a prefix of, or its own."""
    return split_length(point.name)[0]


def select(points: Mapping[str, Sequence[Point]], models: Sequence[str] | None) -> dict[str, list[Point]]:
    """Return the points of some models, of all by default.

    Raises:
        DoapError: If a model is in no result.
    """
    known = {model_of(point) for panel in points.values() for point in panel}
    if unknown := set(models or known) - known:
        raise DoapError(f"{', '.join(sorted(unknown))}: not in the results (there are: {', '.join(sorted(known))})")
    chosen = set(models or known)
    return {title: [point for point in panel if model_of(point) in chosen] for title, panel in points.items()}


def draw(points: Mapping[str, Sequence[Point]], path: Path) -> None:
    """Draw one panel per benchmark."""
    figure = Figure(figsize=(6.4 * len(points), HEIGHT), layout="constrained")
    panels = figure.subplots(1, len(points), squeeze=False)[0]
    models = list(dict.fromkeys(model_of(point) for panel in points.values() for point in panel))
    colours = colours_of(models)
    for axes, (title, panel) in zip(panels, points.items(), strict=True):
        _draw_panel(axes, panel, colours)
        axes.set(title=title, xlabel="bytes per descriptor", ylabel="mAP %")
    write_figure(figure, path, dpi=130)


def _draw_panel(axes: Axes, points: Sequence[Point], colours: Mapping[str, str]) -> None:
    longest: list[Point] = []
    for model in dict.fromkeys(map(model_of, points)):
        line = sorted((point for point in points if model_of(point) == model), key=lambda point: point.bytes)
        sizes, precisions = [point.bytes for point in line], [point.precision for point in line]
        axes.plot(sizes, precisions, "o-" if len(line) > 1 else "o", color=colours[model], label=model)
        longest.append(line[-1])
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.grid(alpha=0.3)
    axes.margins(x=0.2)
    _write_names(axes, longest)


def _write_names(axes: Axes, points: Sequence[Point]) -> None:
    """Write the name of the model beside each point; names beside points of one size do not overlap."""
    bottom, top = axes.get_ylim()
    height = (top - bottom) * LABEL_POINTS / (72 * HEIGHT * 0.8)  # the axes take about this share of the figure
    heights: dict[int, float] = {}
    for point in sorted(points, key=lambda point: -point.precision):
        label_y = min(point.precision, heights.get(point.bytes, top) - height)
        heights[point.bytes] = label_y
        label = (point.bytes * 1.1, label_y)
        axes.annotate(model_of(point), (point.bytes, point.precision), label, fontsize=LABEL_POINTS - 1, va="center")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULT", help="written by doap eval ... --json")
    parser.add_argument("-o", "--output", type=Path, required=True, help="figure to write")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="models to draw, with prefixes; all by default")
    options = parser.parse_args(arguments)
    try:
        check_figure_format(options.output)
        points = select(read_points(options.results), options.models)
    except DoapError as error:
        sys.exit(str(error))
    draw(points, options.output)
    for title, panel in points.items():
        print(title)
        for point in sorted(panel, key=lambda point: (point.bytes, -point.precision)):
            print(f"  {point.bytes:>5} bytes  {point.precision:5.1f}  {point.name}")


if __name__ == "__main__":
    main()
