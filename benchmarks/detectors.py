"""Repeatability and matching score of detectors, compared with baselines, and the selection of their settings.

    python benchmarks/detectors.py --photos FOLDER … --static FOLDER            # all detectors and baselines
    python benchmarks/detectors.py --photos FOLDER … --static FOLDER --settings # every setting, one at a time
    python benchmarks/detectors.py --sequences oxford                           # image sequences

`--photos` are any photos: each is tilted, rotated, zoomed and relit. `--static` has one folder of exposures per static
view. Settings are selected on these alone; sequences of public benchmarks, such as Oxford's, are only reported.

Each detector gives its strongest frames, equally many where it finds enough. A threshold leaves fewer frames and
raises the shares, so the number of correct matches is reported too. For frames in the common region of two images:

- repeatability: share with a partner, one to one, of an overlap error below 40 % and below 50 %
- matching score: share whose mutual nearest neighbour by RootSIFT has an overlap error below 50 %, with patches of
  extent 3 and 12

Both are shares of the frames of the image with fewer; matches are also given as a number. Values are means over pairs
with 95 % intervals. Seconds are of one core. Writes benchmarks/results/detectors-….json.

A setting was changed if the matching score or the repeatability rose, pair by pair, by more than the interval, and
neither fell by more than it. The affine shape of a stretched blob had to remain that of the blob, and orientations had
to remain close to SIFT's; this bounds how early the shape may converge and how smooth its gradients may be. Two changes
are trade-offs: the Hessian's first level gives better but fewer frames, and the shape converges earlier for speed only.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from unittest import mock

import kornia
import numpy as np
import torch
from numpy.typing import NDArray

from detector_baselines import baselines
from detector_pairs import Pair, sequence_pairs, static_pairs, tilted_pairs
from doap.images import affine_shape, detectors, scale_space
from doap.images.detectors import DETECTORS, HESSIAN_SCALE
from doap.images.extraction import extract_patches
from doap.matching.nearest import mutual_nearest
from doap.types import Frames, Grey
from machine import write_result
from repeatability import find_overlaps

EXTENTS = (3, 12)
PATCH_SIZE = 32

PLAIN = ("harris", "hessian")
AFFINE = ("harris-affine", "hessian-affine")
# Settings to try: module, name, values, detectors.
GRID: tuple[tuple[ModuleType, str, tuple[float, ...], tuple[str, ...]], ...] = (
    (detectors, "HARRIS_ALPHA", (0.02, 0.05, 0.08), ("harris",)),
    (detectors, "HARRIS.threshold", (4, 16, 64), ("harris",)),
    (detectors, "HESSIAN.threshold", (4, 16, 64), ("hessian",)),
    (detectors, "HARRIS.base_sigma", (1.0, 1.3), ("harris",)),
    (detectors, "HESSIAN.base_sigma", (1.0, 1.3, 1.6), ("hessian",)),
    (scale_space, "LEVELS_PER_OCTAVE", (2, 3, 4), PLAIN),
    (scale_space, "MAX_OFFSET", (0.6, 1.0), PLAIN),
    (affine_shape, "ORIENTATION.window", (1.5, 2.0, 3.0), PLAIN),
    (affine_shape, "ORIENTATION.smoothing", (0.7, 1.0, 1.4, 2.0), PLAIN),
    (affine_shape, "ORIENTATION.spacing", (0.5, 0.75, 1.0), PLAIN),
    (affine_shape, "SHAPE.window", (3.0, 4.0, 5.0), AFFINE),
    (affine_shape, "SHAPE.smoothing", (0.35, 0.5, 0.7), AFFINE),
    (affine_shape, "SHAPE.spacing", (0.5, 0.75, 1.0), AFFINE),
    (affine_shape, "MAX_AXIS_RATIO", (3.0, 6.0, 9.0), AFFINE),
    (affine_shape, "MAX_ITERATIONS", (4, 8, 12), AFFINE),
    (affine_shape, "ISOTROPIC_RATIO", (1.05, 1.1, 1.2), AFFINE),
)
HARRIS_WINDOWS = (0.7, 1.0, 1.4)

Scores = dict[str, float]


@dataclass(frozen=True)
class Variant:
    """A detector with changed settings: module, name and value of each."""

    detector: str
    label: str = "default"
    settings: tuple[tuple[ModuleType, str, object], ...] = ()

    def evaluate(self, pair: Pair, limit: int) -> Scores:
        """Evaluate on one pair."""
        with ExitStack() as stack:
            for module, name, value in self.settings:
                stack.enter_context(mock.patch.object(module, name, value))
            return evaluate(pair, DETECTORS[self.detector], limit, EXTENTS[:1])


def setting_variants() -> list[Variant]:
    """Return every detector with default settings, then with each setting at each other value."""
    variants = [Variant(name) for name in (*PLAIN, *AFFINE)]
    for module, path, values, names in GRID:
        default = attrgetter(path)(module)
        variants += [
            Variant(n, f"{path} = {v:g}", (override(module, path, v),)) for n in names for v in values if v != default
        ]
    for window in HARRIS_WINDOWS:
        if window != detectors.HARRIS_WINDOW:
            scale = HESSIAN_SCALE * (1 + 2 * window**2) ** 0.25
            both = (detectors, "HARRIS_WINDOW", window), override(detectors, "HARRIS.scale", scale)
            variants.append(Variant("harris", f"HARRIS_WINDOW = {window:g}", both))
    return variants


def override(module: ModuleType, path: str, value: float) -> tuple[ModuleType, str, object]:
    """Return another value of a constant of a module, or of a field of one, for `mock.patch.object`."""
    name, _, field = path.partition(".")
    return module, name, replace(getattr(module, name), **{field: value}) if field else value


def evaluate(
    pair: Pair, detect: Callable[[Grey, int | None], Frames], limit: int, extents: Sequence[int] = EXTENTS
) -> Scores:
    """Evaluate one detector on one pair."""
    start = time.process_time()
    detected = detect(pair.first, limit), detect(pair.second, limit)
    seconds = (time.process_time() - start) / 2
    overlaps = find_overlaps(detected, (pair.first.shape, pair.second.shape), pair.homography)
    scores = {f"repeatability {100 * error:g} %": overlaps.repeatability(error) for error in (0.4, 0.5)}
    for extent in extents:
        first, second = (rootsift(*f, extent) for f in ((pair.first, overlaps.first), (pair.second, overlaps.second)))
        matches, _ = mutual_nearest(first, second)
        correct = overlaps.are_correct(matches, 0.5).sum()
        scores[f"matching {extent}"] = float(correct / max(1, overlaps.min_frames))
        scores[f"correct {extent}"] = float(correct)
    return {**scores, "frames": sum(map(len, detected)) / 2, "seconds": seconds}


def rootsift(image: Grey, frames: Frames, extent: float) -> NDArray[np.float32]:
    """Compute kornia's RootSIFT of patches, (N, 128); OpenCV's ignores the affine shape."""
    if not len(frames):
        return np.zeros((0, 128), np.float32)
    patches = torch.from_numpy(extract_patches(image, frames, PATCH_SIZE, extent))[:, None].float()
    with torch.no_grad():
        return np.asarray(kornia.feature.SIFTDescriptor(PATCH_SIZE, rootsift=True)(patches))


def evaluate_settings(pair: Pair, limit: int) -> list[Scores]:
    """Evaluate every variant on one pair."""
    torch.set_num_threads(1)
    return [variant.evaluate(pair, limit) for variant in setting_variants()]


def evaluate_detectors(pair: Pair, limit: int) -> list[Scores]:
    """Evaluate all detectors and baselines on one pair."""
    torch.set_num_threads(1)
    return [evaluate(pair, detect, limit) for detect in {**DETECTORS, **baselines(limit)}.values()]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half the width of its 95 % interval."""
    deviation = np.std(values, ddof=1) if len(values) > 1 else np.nan
    return float(np.mean(values)), float(1.96 * deviation / np.sqrt(len(values)))


def kinds_of(pairs: Sequence[Pair]) -> dict[str, list[int]]:
    """Return the indices of the pairs of each kind, and of all."""
    kinds = {kind: [n for n, p in enumerate(pairs) if p.kind == kind] for kind in dict.fromkeys(p.kind for p in pairs)}
    tilted = [n for n, p in enumerate(pairs) if p.kind.startswith("tilt")]
    return {**kinds, **({"tilted": tilted} if tilted else {}), "all": list(range(len(pairs)))}


def table_of_detectors(pairs: Sequence[Pair], scores: Sequence[Sequence[Scores]]) -> dict[str, object]:
    """Return the means by detector and kind of pair, and print them."""
    names = [*DETECTORS, *baselines(1)]
    result: dict[str, object] = {}
    for kind, indices in kinds_of(pairs).items():
        print(f"\n{kind}, {len(indices)} pairs")
        rows: dict[str, object] = {}
        for number, name in enumerate(names):
            own = [scores[n][number] for n in indices]
            means = {key: interval([s[key] for s in own]) for key in own[0]}
            print(f"  {name:24}", "  ".join(f"{k} {_format(k, *m)}" for k, m in means.items()))
            rows[name] = means
        result[kind] = rows
    return result


def table_of_settings(pairs: Sequence[Pair], scores: Sequence[Sequence[Scores]]) -> dict[str, object]:
    """Return the default scores and the paired differences of each variant from them, and print them."""
    variants = setting_variants()
    base = {variant.detector: number for number, variant in enumerate(variants) if not variant.settings}
    kinds = kinds_of(pairs)
    result: dict[str, object] = {}
    for kind in (k for k in ("tilted", "static", "all") if k in kinds):
        print(f"\n{kind}, {len(kinds[kind])} pairs: default, then differences")
        rows: dict[str, object] = {}
        for number, variant in enumerate(variants):
            own, before = ([scores[n][k] for n in kinds[kind]] for k in (number, base[variant.detector]))
            gains = {
                key: interval([s[key] - (b[key] if variant.settings else 0) for s, b in zip(own, before, strict=True)])
                for key in own[0]
            }
            print(
                f"  {variant.detector:15} {variant.label:24}",
                "  ".join(f"{k} {_format(k, *m)}" for k, m in gains.items()),
            )
            rows[f"{variant.detector}: {variant.label}"] = gains
        result[kind] = rows
    return result


def _format(key: str, mean: float, half: float) -> str:
    if key == "seconds":
        return f"{mean:.3f}"
    factor = 1 if key.startswith(("frames", "correct")) else 100
    return f"{factor * mean:5.1f}±{factor * half:.1f}"


def main() -> None:
    """Run, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, nargs="+", default=[])
    parser.add_argument("--static", type=Path)
    parser.add_argument("--sequences", type=Path)
    parser.add_argument("--pairs", type=int, nargs=2, default=(40, 20), metavar=("TILTED", "STATIC"))
    parser.add_argument("--seed", type=int, default=0, help="seed of the photos and homographies")
    parser.add_argument("--frames", type=int, default=1000, help="number per image")
    parser.add_argument("--settings", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pairs = tilted_pairs(arguments.photos, arguments.pairs[0], arguments.seed) if arguments.photos else []
    pairs += static_pairs(arguments.static, arguments.pairs[1]) if arguments.static else []
    pairs += sequence_pairs(arguments.sequences) if arguments.sequences else []
    if not pairs:
        parser.error("name --photos, --static or --sequences")
    work = partial(evaluate_settings if arguments.settings else evaluate_detectors, limit=arguments.frames)
    scores = []
    with ProcessPoolExecutor(arguments.processes) as pool:
        for pair, result in zip(pairs, pool.map(work, pairs), strict=True):
            scores.append(result)
            print(f"{len(scores)} of {len(pairs)}: {pair.kind}, {pair.name}", flush=True)
    table = (table_of_settings if arguments.settings else table_of_detectors)(pairs, scores)
    name = "detectors" + ("-settings" if arguments.settings else "") + ("-sequences" if arguments.sequences else "")
    description = {
        "frames": arguments.frames,
        "seed": arguments.seed,
        "pairs": len(pairs),
        "kinds": dict(Counter(p.kind for p in pairs)),
    }
    write_result(name, "cpu", {**description, "mean and half of the 95 % interval": table})


if __name__ == "__main__":
    main()
