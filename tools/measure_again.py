"""Measure models again with the settings of recorded results, and put their rows into them.

    python tools/measure_again.py doap-128 --results docs/results/oxford-dog.json docs/results/hpatches.json
    python tools/measure_again.py doap-128 --results docs/results/oxford-dog.json --check    # writes nothing

For a model whose weights have changed, or a new one. Prefixes of the models that a result has, NAME@64, are measured,
too. A result names its data by a path, which is relative to --root, by default this folder. Takes results of `doap eval
oxford` and `doap eval hpatches`. Each result is written when its models are measured. Run tools/result_tables.py and
tools/model_pages.py afterwards.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from doap.cli.console import choose_device, step_bar
from doap.errors import DoapError
from doap.evaluation.harness.benchmark import Benchmark
from doap.evaluation.harness.methods import open_methods
from doap.evaluation.harness.result import Result, Score, read_result
from doap.evaluation.hpatches.benchmark import HPatches
from doap.evaluation.hpatches.task_data import TASKS
from doap.evaluation.image_pairs.oxford import Oxford
from doap.files import write_text
from doap.networks import split_length
from merge_results import merge


def repeated_benchmark(result: Result, root: Path, device: str) -> Benchmark:
    """Return the benchmark with the data and settings of a result.

    Args:
        result: Result of HPatches or Oxford.
        root: Folder that the path of the data is relative to.
        device: Device that computes distances.

    Raises:
        DoapError: If it is a result of another benchmark.
    """
    settings, data = result.settings, root / result.settings["data"]
    if result.benchmark == "hpatches":
        return HPatches(data, settings["split"], requested_tasks(settings), settings["seed"], device=device)
    if result.benchmark == "oxford":
        keypoints = None if settings["keypoints"] == "all" else settings["keypoints"]
        # The first results had one protocol, shape of frames and overlap error, and did not record them.
        protocol, frames = settings.get("protocol", "doap"), settings.get("frames", "detected")
        overlap_error = settings.get("overlap error")
        return Oxford(data, settings["detector"], common_extent(result), keypoints, protocol, overlap_error, frames)
    raise DoapError(f"results of {result.benchmark} cannot be measured again here, only those of hpatches and oxford")


def requested_tasks(settings: dict[str, Any]) -> list[str]:
    """Return the tasks that a result of HPatches was asked for: its own, and those that its data does not allow."""
    left_out = {str(line).partition(":")[0] for line in settings.get("left out", [])}
    return [task for task in TASKS if task in settings["tasks"] or task in left_out]


def common_extent(result: Result) -> float | None:
    """Return the extent at which all methods of a result extracted patches; None if each used its own."""
    extent = result.settings.get("extent", "own")
    return None if extent == "own" else float(extent)


def with_prefixes(names: Sequence[str], result: Result) -> list[str]:
    """Return the models, each followed by its prefixes that a result has."""
    recorded = [str(method["name"]) for method in result.methods]
    return [
        name
        for model in names
        for name in (model, *(other for other in recorded if other != model and split_length(other)[0] == model))
    ]


def measure_again(result: Result, names: Sequence[str], root: Path, device: str) -> Result:
    """Return the rows of models, measured with the settings of a result."""
    benchmark = repeated_benchmark(result, root, device)
    methods = open_methods(
        with_prefixes(names, result), device, common_extent(result), detector=result.settings.get("detector", "")
    )
    with step_bar() as progress:
        measured = benchmark.evaluate(methods, progress)
    return Result.model_validate_json(measured.model_dump_json())  # as it would be read: lists in place of tuples


def largest_difference(older: Result, newer: Result, name: str) -> float | None:
    """Return the largest difference between the numbers of a descriptor in two results; None if one lacks it."""
    first, second = ([row for row in result.scores if row["descriptor"] == name] for result in (older, newer))
    if not first or len(first) != len(second):
        return None
    return max(_difference(row, other) for row, other in zip(first, second, strict=True))


def _difference(first: Score, second: Score) -> float:
    values = [(first.get(column), value) for column, value in second.items()]
    if any(a != b for a, b in values if isinstance(b, str)):
        return math.inf  # rows of other conditions
    return max((abs(a - b) for a, b in values if isinstance(a, float) and isinstance(b, float)), default=0.0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME", help="models")
    parser.add_argument("--results", nargs="+", type=Path, required=True, metavar="FILE", help="results as JSON")
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(),
        help="folder that the data of the results are relative to; by default this one",
    )
    parser.add_argument("--device", help="cpu or cuda; by default the GPU if there is one")
    parser.add_argument("--check", action="store_true", help="print differences from the results; write nothing")
    options = parser.parse_args(arguments)
    try:
        device = choose_device(options.device)
        for file in options.results:
            older = read_result(file)
            newer = measure_again(older, options.names, options.root, device)
            merged = merge(older, newer)
            for method in newer.methods:
                difference = largest_difference(older, newer, method["name"])
                change = "new" if difference is None else f"largest difference {difference:.2f}"
                print(f"{file.name}, {method['name']}: {change}", flush=True)
            if not options.check:
                write_text(file, merged.model_dump_json() + "\n")
    except DoapError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
