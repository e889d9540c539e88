"""Exported ONNX models against PyTorch: size, difference, mAP and speed.

    python benchmarks/export.py --oxford data/oxford --photos photos

PyTorch is the model as trained, in float32 (`fast=False`), and in its inference form ("fast"). The exported graphs read
patches. Difference: largest difference of a value of unit vectors from PyTorch, or fraction of differing bits, on the
patches of the photos. mAP: Oxford sequences, and photos with warped copies of themselves, DoG keypoints at the extent
of the card. Time: batches of 128 patches on as many threads, all forms alternately; the smallest of the rounds.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from onnxruntime import InferenceSession, SessionOptions

import doap
from doap.bridges.onnx import export_model
from doap.choices import ExportPrecision
from doap.errors import DoapError
from doap.evaluation.harness.result import Score
from doap.evaluation.image_pairs.oxford import find_oxford
from doap.evaluation.image_pairs.reading import PairReader
from doap.evaluation.image_pairs.scoring import ImagePair, score_pair
from doap.evaluation.image_pairs.warped import make_pairs, score_warped
from doap.images.reading import find_photos
from doap.types import Descriptors, Frames, Grey, Kind
from machine import write_result

BATCH = 128
DETECTOR = "dog"
PRECISIONS: tuple[ExportPrecision, ...] = ("fp32", "fp16", "int8")

Describe = Callable[[NDArray[np.uint8]], Descriptors]


class Form:
    """One form of a model: describes patches, and frames of images once each."""

    def __init__(self, name: str, kind: Kind, size: int, extent: float, megabytes: float, describe: Describe) -> None:
        self.name = name
        self.kind = kind
        self.megabytes = megabytes
        self.describe = describe
        self._size = size
        self._extent = extent
        self._described: dict[int, tuple[Frames, Descriptors]] = {}  # holds the frames, whose identity is the key

    def describe_frames(self, image: Grey, frames: Frames) -> Descriptors:
        """Extract the patches of the frames and describe them."""
        if id(frames) not in self._described:
            patches = doap.extract_patches(image, frames, self._size, self._extent)
            self._described[id(frames)] = frames, self.describe(patches)
        return self._described[id(frames)][1]


def open_forms(name: str, folder: Path) -> list[Form]:
    """Return PyTorch and all exported forms of a model; one without an int8 form has none."""
    exact, fast = doap.load(name, fast=False), doap.load(name)
    size, extent = exact.input_size, exact.extent_for(DETECTOR)
    weights = sum(value.numel() * value.element_size() for value in exact.state_dict().values()) / 1e6
    forms = [
        Form("PyTorch", exact.kind, size, extent, weights, lambda patches: doap.describe_patches(patches, exact)),
        Form("PyTorch, fast", exact.kind, size, extent, weights, lambda patches: doap.describe_patches(patches, fast)),
    ]
    for precision in PRECISIONS:
        path = folder / f"{name}-{precision}.onnx"
        try:
            export_model(name, path, precision=precision)
        except DoapError as error:
            print(error)
            continue
        describe = open_session(path)
        forms.append(Form(f"ONNX {precision}", exact.kind, size, extent, path.stat().st_size / 1e6, describe))
    return forms


def open_session(path: Path) -> Describe:
    """Return a function that describes patches with onnxruntime, in batches."""
    options = SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def describe(patches: NDArray[np.uint8]) -> Descriptors:
        starts = range(0, len(patches), BATCH)
        return np.concatenate([session.run(None, {"patches": patches[s : s + BATCH]})[0] for s in starts])

    return describe


def difference(actual: Descriptors, expected: Descriptors) -> float:
    """Return the largest difference of a value, or the fraction of differing bits."""
    if actual.dtype == np.uint8:
        return float(np.unpackbits(np.bitwise_xor(actual, expected)).mean())
    return float(np.abs(actual - expected).max())


def measure_times(forms: Sequence[Form], patches: NDArray[np.uint8], rounds: int) -> list[float]:
    """Return the milliseconds per 1,000 patches of each form."""
    seconds: list[list[float]] = [[] for _ in forms]
    for _ in range(rounds + 1):
        for form, own in zip(forms, seconds, strict=True):
            start = time.perf_counter()
            form.describe(patches)
            own.append(time.perf_counter() - start)
    return [1e6 * min(own[1:]) / len(patches) for own in seconds]  # the first round is the warm-up


def mean_ap(pairs: Sequence[ImagePair], form: Form, score: Callable[[ImagePair, Form], Score]) -> float:
    """Return the mean over sequences of the mean AP of their pairs, in percent."""
    by_sequence: dict[str, list[float]] = {}
    for pair in pairs:
        by_sequence.setdefault(pair.sequence, []).append(float(str(score(pair, form)["ap"])))
    return float(np.mean([np.mean(values) for values in by_sequence.values()]))


def measure_model(
    name: str, warped: Sequence[ImagePair], oxford: Sequence[ImagePair], rounds: int
) -> dict[str, dict[str, float]]:
    """Return the figures of all forms of a model, and print them."""
    with tempfile.TemporaryDirectory() as folder:
        forms = open_forms(name, Path(folder))
    model = doap.load(name)
    views = {id(pair.first): pair.first for pair in warped}.values()
    patches = np.concatenate(
        [doap.extract_patches(v.image, v.frames, model.input_size, model.extent_for(DETECTOR)) for v in views]
    )
    times = measure_times(forms, patches[: 8 * BATCH], rounds)
    expected = forms[0].describe(patches)
    rows = {}
    for form, milliseconds in zip(forms, times, strict=True):
        row = {"MB": form.megabytes, "ms per 1,000 patches": milliseconds}
        label = "fraction of bits" if form.kind == "binary" else "largest difference"
        row[label] = difference(form.describe(patches), expected)
        row["mAP warped"] = mean_ap(warped, form, score_warped)
        if oxford:
            row["mAP Oxford"] = mean_ap(oxford, form, score_pair)
        rows[form.name] = row
        print(f"{name}, {form.name}: {', '.join(f'{key} {value:.4g}' for key, value in row.items())}", flush=True)
    return rows


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="folder of photos")
    parser.add_argument("--oxford", type=Path, help="folder of the Oxford sequences")
    parser.add_argument("--models", nargs="+", default=doap.list_models())
    parser.add_argument("--keypoints", type=int, default=500, help="per image")
    parser.add_argument("--copies", type=int, default=2, help="warped copies per photo")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, help="threads of the CPU; all by default")
    parser.add_argument("--try", dest="dry_run", action="store_true", help="write nothing")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    paths = find_photos([options.photos])
    warped = [
        pair
        for seed, path in enumerate(paths)
        for pair in make_pairs(str(path), doap.read_grey(path), options.copies, options.keypoints, seed)
    ]
    reader = PairReader(DETECTOR, options.keypoints)
    oxford = [reader.open(files) for files in find_oxford(options.oxford)] if options.oxford else []
    models = {name: measure_model(name, warped, oxford, options.rounds) for name in options.models}
    if not options.dry_run:
        settings = {"photos": len(paths), "copies": options.copies, "keypoints": options.keypoints, "batch": BATCH}
        write_result("export", "cpu", {**settings, "models": models})


if __name__ == "__main__":
    main()
