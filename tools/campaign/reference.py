"""Results that must be equal on all kinds of CPU, to a stated tolerance.

    PYTHONPATH=tools:tests python -m campaign.reference     # writes tests/campaign/reference.json

The file holds the results of one machine; the tests compare those of theirs with it. Inputs are whole numbers and
photos of scikit-image, so that they are the same everywhere.
"""

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import skimage
import torch
from numpy.typing import NDArray

from doap import AveragePrecisionLoss, describe_patches, detect_and_describe, load, match, mutual_nearest, nearest
from doap.evaluation.metrics.average_precision import average_precision

FILE = Path(__file__).parents[2] / "tests" / "campaign" / "reference.json"

TOLERANCES = {
    "descriptors": 1e-4,  # of components of vectors of length 1, in float32
    "fast descriptors": 2e-2,  # in the precision that is fastest on the CPU: float32, bfloat16 or float16
    "bits": 0.01,  # share of bits that differ
    "distances": 1e-5,
    "indices": 0.0,
    "loss": 1e-5,
    "gradient": 1e-5,  # of its largest component
    "average precision": 1e-8,
    "matches": 0.03,  # relative, of their number
}
"""Largest difference between results of two kinds of CPU."""

Values = NDArray[Any]


def measure() -> dict[str, Values]:
    """Return all results of this machine by name; the first word or words of a name are a key of `TOLERANCES`."""
    return {
        **{f"descriptors of {name}": _describe(name, fast=False) for name in ("doap-demo-128", "doap-tiny-128")},
        "fast descriptors of doap-demo-128": _describe("doap-demo-128", fast=True),
        "bits of doap-demo-256b": np.unpackbits(_describe("doap-demo-256b", fast=False), axis=1),
        **_match_descriptors(),
        **{name: value for kind in ("real", "binary") for name, value in _objective(kind).items()},
        "average precision": _average_precision(),
        "matches of two photos": _match_photos(),
    }


def tolerance(name: str) -> float:
    """Return the tolerance of a result."""
    return next(value for start, value in TOLERANCES.items() if name.startswith(start))


def difference(name: str, measured: Values, expected: Values) -> float:
    """Return the difference of two results in the measure of their tolerance."""
    if measured.shape != expected.shape:
        return float("inf")
    distance = np.abs(measured.astype(np.float64) - expected.astype(np.float64))
    if name.startswith("bits"):
        return float(distance.mean())
    if name.startswith(("gradient", "matches")):
        return float(distance.max() / np.abs(expected).max())
    return float(distance.max())


def _whole_numbers(seed: int, shape: tuple[int, ...], limit: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(-limit, limit + 1, shape)


def _describe(model: str, fast: bool) -> Values:
    """Describe patches of a photo; the first components."""
    photo = skimage.data.camera()
    corners = [(60, 60), (120, 200), (200, 240), (330, 120), (400, 300), (90, 400)]
    patches = np.stack([photo[top : top + 32, left : left + 32] for top, left in corners])
    return np.asarray(describe_patches(patches, load(model, fast=fast)))[:, :24]


def _descriptors(seed: int, count: int) -> NDArray[np.float32]:
    values = _whole_numbers(seed, (count, 64), 100)
    vectors: NDArray[np.float32] = (values / np.sqrt((values**2).sum(1, keepdims=True))).astype(np.float32)
    return vectors


def _match_descriptors() -> dict[str, Values]:
    first, second = _descriptors(1, 300), _descriptors(2, 280)
    second[:100] = first[50:150] + 0.01 * second[100:200]
    rows, distances = nearest(first, second)
    pairs, pair_distances = mutual_nearest(first, second)
    return {
        "indices of nearest": np.asarray(rows)[:60],
        "distances of nearest": np.asarray(distances)[:60],
        "indices of mutual nearest": np.asarray(pairs)[:60],
        "distances of mutual nearest": np.asarray(pair_distances)[:60],
    }


def _objective(kind: str) -> dict[str, Values]:
    outputs = torch.tensor(_whole_numbers(3, (48, 16), 1000) / 500, dtype=torch.float32, requires_grad=True)
    loss = AveragePrecisionLoss(kind)(outputs, torch.arange(48) // 3)  # type: ignore[arg-type]
    loss.backward()
    assert outputs.grad is not None
    return {f"loss, {kind}": loss.detach().numpy(), f"gradient, {kind}": outputs.grad[:6].numpy()}


def _average_precision() -> Values:
    scores, labels = _whole_numbers(4, (40, 100), 20), _whole_numbers(5, (40, 100), 9) > 5
    return np.asarray([average_precision(row, relevant) for row, relevant in zip(scores, labels, strict=True)])


def _match_photos() -> Values:
    photo = skimage.data.camera()
    model = load("doap-demo-128", fast=False)
    first, second = (detect_and_describe(image, model, max_keypoints=500) for image in (photo, photo[::-1, ::-1]))
    return np.asarray([len(match(first, second))])


def main() -> None:
    """Write the results of this machine."""
    results = {name: np.round(values.astype(np.float64), 10).tolist() for name, values in measure().items()}
    content = {
        "machine": f"{platform.machine()}, torch {torch.__version__}, NumPy {np.__version__}",
        "results": results,
    }
    FILE.write_text(json.dumps(content) + "\n")
    print(FILE, FILE.stat().st_size)


if __name__ == "__main__":
    main()
