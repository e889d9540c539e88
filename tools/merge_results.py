"""Replace the rows of some descriptors in a result by those of newer results of the same benchmark.

    python tools/merge_results.py docs/results/oxford-dog.json out/new-models.json

Run tools/result_tables.py afterwards. With it, not all methods have to be measured again for a new model. Descriptors
that the older result does not have are added. Settings that both name must be equal.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from doap.errors import DoapError
from doap.evaluation.harness.result import Result, read_result
from doap.evaluation.image_pairs.tables import compare_all
from doap.files import write_text

PLACES = ("data",)  # settings that may differ: where the data lie


def merge(older: Result, newer: Result) -> Result:
    """Return a result with all rows of the newer one, and those of the older one for other descriptors.

    Raises:
        DoapError: If they are of different benchmarks or settings, or of different image pairs where descriptors are
            compared.
    """
    if older.benchmark != newer.benchmark:
        raise DoapError(f"results of {older.benchmark} and {newer.benchmark} cannot be merged")
    for key in older.settings.keys() & newer.settings.keys() - {*PLACES}:
        if older.settings[key] != newer.settings[key]:
            raise DoapError(f"setting {key}: {older.settings[key]} and {newer.settings[key]} differ")
    # Not by its comparisons: a result of one descriptor has none.
    has_pairs = any("pair" in row for row in older.scores)
    if has_pairs and _image_pairs(older) != _image_pairs(newer):
        raise DoapError("the results are of different image pairs, or of the same in another order")
    replaced = {str(method["name"]) for method in newer.methods}
    scores = [row for row in older.scores if row["descriptor"] not in replaced] + newer.scores
    return older.model_copy(
        update={
            "methods": [method for method in older.methods if method["name"] not in replaced] + newer.methods,
            "scores": scores,
            "curves": [curve for curve in older.curves if curve["descriptor"] not in replaced] + newer.curves,
            "comparisons": compare_all(scores) if has_pairs else [],
        }
    )


def _image_pairs(result: Result) -> list[tuple[object, object]]:
    """Return sequence and name of the image pairs of a result, in their order."""
    first = result.scores[0]["descriptor"]
    return [(row["sequence"], row["pair"]) for row in result.scores if row["descriptor"] == first]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("older", type=Path, help="result that is replaced")
    parser.add_argument("newer", type=Path, nargs="+", help="results with the new rows; later ones win")
    options = parser.parse_args(arguments)
    try:
        result = read_result(options.older)
        for path in options.newer:
            result = merge(result, read_result(path))
        write_text(options.older, result.model_dump_json() + "\n")
    except DoapError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
