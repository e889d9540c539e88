"""How well detectors find the same frames again, ours beside others', and how their settings were chosen.

    python benchmarks/detectors.py --photos FOLDER … --still FOLDER            # ours and peers
    python benchmarks/detectors.py --photos FOLDER … --still FOLDER --settings # every setting, one at a time
    python benchmarks/detectors.py --sequences oxford                          # a report on image sequences

`--photos` are any photos: each is seen from the side, turned, zoomed and relit. `--still` has a folder for each still
view under different exposure. Settings are chosen on these alone; sequences that others are judged on, such as
Oxford's, are only ever reported.

Each detector gives its strongest frames, equally many where it finds that many: a threshold leaves fewer, and then
the shares flatter it, so compare the numbers of right matches too. Of those in the common part of a pair of pictures:

- repeatability: how many have a partner of their own with an overlap error under 40 % and under 50 %
- matching score: how many have it (50 %) as their mutual nearest neighbour by RootSIFT, on patches that reach 3 and
  12 scales either side

both as shares of the picture with fewer frames, the matches as a number too; means over pairs with 95 % intervals.
Seconds are of one core. Writes benchmarks/results/detectors-….json.

A setting was changed where the matching score or repeatability rose, pair by pair, by more than the interval, and
neither of them fell by more than it. The affine shape of a stretched blob had to stay that of the blob, and
orientations near SIFT's, which bounds how early the shape may settle and how smooth its gradients may be. Two changes
are trades: the Hessian's first level gives better frames but fewer, and the shape settles earlier for speed alone.
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

from detector_pairs import Pair, sequence_pairs, still_pairs, tilted_pairs
from detector_peers import peers
from doap.images import affine_shape, detectors, scale_space
from doap.images.detectors import DETECTORS, HESSIAN_SCALE
from doap.images.extraction import extract_patches
from doap.matching.nearest import mutual_nearest
from doap.types import Frames, Grey
from machine import write_result
from repeatability import find_overlaps

EXTENTS = (3, 12)
PATCH = 32

PLAIN = ("harris", "hessian")
AFFINE = ("harris-affine", "hessian-affine")
# What is tried: where it stands, its name, values, detectors.
GRID: tuple[tuple[ModuleType, str, tuple[float, ...], tuple[str, ...]], ...] = (
    (detectors, "HARRIS_ALPHA", (0.02, 0.05, 0.08), ("harris",)),
    (detectors, "HARRIS.threshold", (4, 16, 64), ("harris",)),
    (detectors, "HESSIAN.threshold", (4, 16, 64), ("hessian",)),
    (detectors, "HARRIS.first", (1.0, 1.3), ("harris",)),
    (detectors, "HESSIAN.first", (1.0, 1.3, 1.6), ("hessian",)),
    (scale_space, "STEPS", (2, 3, 4), PLAIN),
    (scale_space, "LONGEST_STEP", (0.6, 1.0), PLAIN),
    (affine_shape, "TURN.window", (1.5, 2.0, 3.0), PLAIN),
    (affine_shape, "TURN.smoothing", (0.7, 1.0, 1.4, 2.0), PLAIN),
    (affine_shape, "TURN.spacing", (0.5, 0.75, 1.0), PLAIN),
    (affine_shape, "SHAPE.window", (3.0, 4.0, 5.0), AFFINE),
    (affine_shape, "SHAPE.smoothing", (0.35, 0.5, 0.7), AFFINE),
    (affine_shape, "SHAPE.spacing", (0.5, 0.75, 1.0), AFFINE),
    (affine_shape, "MAX_AXIS_RATIO", (3.0, 6.0, 9.0), AFFINE),
    (affine_shape, "ITERATIONS", (4, 8, 12), AFFINE),
    (affine_shape, "ISOTROPIC", (1.05, 1.1, 1.2), AFFINE),
)
HARRIS_WINDOWS = (0.7, 1.0, 1.4)

Scores = dict[str, float]


@dataclass(frozen=True)
class Arm:
    """A detector, and what is set otherwise: module, name and value of each."""

    detector: str
    label: str = "as it is"
    settings: tuple[tuple[ModuleType, str, object], ...] = ()

    def judge(self, pair: Pair, limit: int) -> Scores:
        """This arm on one pair."""
        with ExitStack() as stack:
            for module, name, value in self.settings:
                stack.enter_context(mock.patch.object(module, name, value))
            return judge(pair, DETECTORS[self.detector], limit, EXTENTS[:1])


def arms_of_settings() -> list[Arm]:
    """Every detector as it is, then with each setting at each other value."""
    arms = [Arm(name) for name in (*PLAIN, *AFFINE)]
    for module, path, values, names in GRID:
        present = attrgetter(path)(module)
        arms += [Arm(n, f"{path} = {v:g}", (override(module, path, v),)) for n in names for v in values if v != present]
    for window in HARRIS_WINDOWS:
        if window != detectors.HARRIS_WINDOW:
            scale = HESSIAN_SCALE * (1 + 2 * window**2) ** 0.25
            both = (detectors, "HARRIS_WINDOW", window), override(detectors, "HARRIS.scale", scale)
            arms.append(Arm("harris", f"HARRIS_WINDOW = {window:g}", both))
    return arms


def override(module: ModuleType, path: str, value: float) -> tuple[ModuleType, str, object]:
    """A constant of a module, or a field of one, at another value."""
    name, _, field = path.partition(".")
    return module, name, replace(getattr(module, name), **{field: value}) if field else value


def judge(
    pair: Pair, detect: Callable[[Grey, int | None], Frames], limit: int, extents: Sequence[int] = EXTENTS
) -> Scores:
    """One detector on one pair."""
    start = time.process_time()
    detected = detect(pair.first, limit), detect(pair.second, limit)
    seconds = (time.process_time() - start) / 2
    found = find_overlaps(detected, (pair.first.shape, pair.second.shape), pair.homography)
    scores = {f"repeatability {100 * error:g} %": found.repeatability(error) for error in (0.4, 0.5)}
    for extent in extents:
        first, second = (rootsift(*f, extent) for f in ((pair.first, found.first), (pair.second, found.second)))
        matches, _ = mutual_nearest(first, second)
        right = found.are_true(matches, 0.5).sum()
        scores[f"matching {extent}"] = float(right / max(1, found.fewer))
        scores[f"right {extent}"] = float(right)
    return {**scores, "frames": sum(map(len, detected)) / 2, "seconds": seconds}


def rootsift(image: Grey, frames: Frames, extent: float) -> NDArray[np.float32]:
    """Kornia's RootSIFT of patches, (N, 128): it sees the affine shape, which OpenCV's does not."""
    if not len(frames):
        return np.zeros((0, 128), np.float32)
    patches = torch.from_numpy(extract_patches(image, frames, PATCH, extent))[:, None].float()
    with torch.no_grad():
        return np.asarray(kornia.feature.SIFTDescriptor(PATCH, rootsift=True)(patches))


def judge_settings(pair: Pair, limit: int) -> list[Scores]:
    """Every arm on one pair."""
    torch.set_num_threads(1)
    return [arm.judge(pair, limit) for arm in arms_of_settings()]


def judge_detectors(pair: Pair, limit: int) -> list[Scores]:
    """Ours and peers on one pair."""
    torch.set_num_threads(1)
    return [judge(pair, detect, limit) for detect in {**DETECTORS, **peers(limit)}.values()]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half the width of its 95 % interval."""
    spread = np.std(values, ddof=1) if len(values) > 1 else np.nan
    return float(np.mean(values)), float(1.96 * spread / np.sqrt(len(values)))


def kinds_of(pairs: Sequence[Pair]) -> dict[str, list[int]]:
    """Which pairs are of each kind, and all."""
    kinds = {kind: [n for n, p in enumerate(pairs) if p.kind == kind] for kind in dict.fromkeys(p.kind for p in pairs)}
    tilted = [n for n, p in enumerate(pairs) if p.kind.startswith("tilt")]
    return {**kinds, **({"tilted": tilted} if tilted else {}), "all": list(range(len(pairs)))}


def table_of_detectors(pairs: Sequence[Pair], scores: Sequence[Sequence[Scores]]) -> dict[str, object]:
    """Means by detector and by kind of pair; printed."""
    names = [*DETECTORS, *peers(1)]
    result: dict[str, object] = {}
    for kind, chosen in kinds_of(pairs).items():
        print(f"\n{kind}, {len(chosen)} pairs")
        rows: dict[str, object] = {}
        for number, name in enumerate(names):
            own = [scores[n][number] for n in chosen]
            means = {key: interval([s[key] for s in own]) for key in own[0]}
            print(f"  {name:24}", "  ".join(f"{k} {_shown(k, *m)}" for k, m in means.items()))
            rows[name] = means
        result[kind] = rows
    return result


def table_of_settings(pairs: Sequence[Pair], scores: Sequence[Sequence[Scores]]) -> dict[str, object]:
    """Every detector as it is, then differences of each arm from that, pair by pair; printed."""
    arms = arms_of_settings()
    base = {arm.detector: number for number, arm in enumerate(arms) if not arm.settings}
    kinds = kinds_of(pairs)
    result: dict[str, object] = {}
    for kind in (k for k in ("tilted", "still", "all") if k in kinds):
        print(f"\n{kind}, {len(kinds[kind])} pairs: as it is, then differences")
        rows: dict[str, object] = {}
        for number, arm in enumerate(arms):
            own, before = ([scores[n][k] for n in kinds[kind]] for k in (number, base[arm.detector]))
            gains = {
                key: interval([s[key] - (b[key] if arm.settings else 0) for s, b in zip(own, before, strict=True)])
                for key in own[0]
            }
            print(f"  {arm.detector:15} {arm.label:24}", "  ".join(f"{k} {_shown(k, *m)}" for k, m in gains.items()))
            rows[f"{arm.detector}: {arm.label}"] = gains
        result[kind] = rows
    return result


def _shown(key: str, mean: float, half: float) -> str:
    if key == "seconds":
        return f"{mean:.3f}"
    factor = 1 if key.startswith(("frames", "right")) else 100
    return f"{factor * mean:5.1f}±{factor * half:.1f}"


def main() -> None:
    """Run, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, nargs="+", default=[])
    parser.add_argument("--still", type=Path)
    parser.add_argument("--sequences", type=Path)
    parser.add_argument("--pairs", type=int, nargs=2, default=(40, 20), metavar=("TILTED", "STILL"))
    parser.add_argument("--seed", type=int, default=0, help="which photos, and how they are seen")
    parser.add_argument("--frames", type=int, default=1000, help="of each picture")
    parser.add_argument("--settings", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    pairs = tilted_pairs(asked.photos, asked.pairs[0], asked.seed) if asked.photos else []
    pairs += still_pairs(asked.still, asked.pairs[1]) if asked.still else []
    pairs += sequence_pairs(asked.sequences) if asked.sequences else []
    if not pairs:
        parser.error("name --photos, --still or --sequences")
    work = partial(judge_settings if asked.settings else judge_detectors, limit=asked.frames)
    scores = []
    with ProcessPoolExecutor(asked.processes) as pool:
        for pair, done in zip(pairs, pool.map(work, pairs), strict=True):
            scores.append(done)
            print(f"{len(scores)} of {len(pairs)}: {pair.kind}, {pair.name}", flush=True)
    table = (table_of_settings if asked.settings else table_of_detectors)(pairs, scores)
    name = "detectors" + ("-settings" if asked.settings else "") + ("-sequences" if asked.sequences else "")
    about = {
        "frames": asked.frames,
        "seed": asked.seed,
        "pairs": len(pairs),
        "kinds": dict(Counter(p.kind for p in pairs)),
    }
    write_result(name, "cpu", {**about, "mean and half of the 95 % interval": table})


if __name__ == "__main__":
    main()
