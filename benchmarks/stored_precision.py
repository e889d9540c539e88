"""Loss of descriptors stored as float16 or uint8: mAP of Oxford image matching beside float32.

    python benchmarks/stored_precision.py --data oxford/

1,000 DoG keypoints per image at extent 12. Each image is quantised by its own step, as `Features.save` does. "mixed"
compares a first image in float32 with a second one in uint8. Writes benchmarks/results/stored-precision.json.
"""

import argparse
import json
from pathlib import Path
from typing import get_args

import numpy as np

import doap
from doap.choices import StoredPrecision
from doap.evaluation.image_pairs.oxford import find_oxford
from doap.evaluation.image_pairs.reading import PairReader
from doap.evaluation.image_pairs.scoring import describe_pair, pair_average_precision
from doap.features.precision import decode, encode
from machine import RESULTS

MODELS = ("doap-128", "doap-st-128", "doap-tiny-128")
EXTENT, KEYPOINTS = 12.0, 1000
FORMS: dict[str, tuple[StoredPrecision, StoredPrecision]] = {
    **{precision: (precision, precision) for precision in get_args(StoredPrecision)},
    "mixed": ("float32", "uint8"),
}


def measure(data: Path) -> dict[str, dict[str, float]]:
    """Return mAP in percent by model and form: the mean over sequences of the mean over pairs."""
    methods = doap.open_methods(list(MODELS), extent=EXTENT, detector="dog")
    reader = PairReader("dog", KEYPOINTS)
    values: dict[tuple[str, str, str], list[float]] = {}
    for pair in map(reader.open, find_oxford(data)):
        for method in methods:
            both = describe_pair(pair, method)
            for form, precisions in FORMS.items():
                stored = (decode(*encode(rows, how)) for rows, how in zip(both, precisions, strict=True))
                key = method.name, form, pair.sequence
                values.setdefault(key, []).append(100 * pair_average_precision(pair, *stored))
    sequences = {sequence for _, _, sequence in values}
    return {
        model: {form: float(np.mean([np.mean(values[model, form, s]) for s in sequences])) for form in FORMS}
        for model in MODELS
    }


def main() -> None:
    """Measure all models, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the Oxford sequences")
    options = parser.parse_args()
    result = measure(options.data)
    for model, forms in result.items():
        print(model, ", ".join(f"{form} {value:.3f}" for form, value in forms.items()))
    target = RESULTS / "stored-precision.json"
    target.write_text(json.dumps({"keypoints": KEYPOINTS, "extent": EXTENT, "mAP": result}, indent=1) + "\n")
    print(f"written to {target}")


if __name__ == "__main__":
    main()
