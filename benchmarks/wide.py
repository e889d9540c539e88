"""Pairs of a photo and a view of it from the side: how many plain matching and `doap.match_wide` solve, and when.

    python benchmarks/wide.py photos/ --model doap-128
    python benchmarks/wide.py photos/ --model doap-128 --unrelated 200

The second image of a pair shows the photo as a plane, tilted about a random axis and turned: tilt t compresses it by t
at the centre. A pair is solved if the estimated homography maps all corners of the photo to within 5 pixels.
`--unrelated N` instead matches N pairs of different photos, of which none should be verified.
"""

import argparse
import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

import doap
from doap.choices import MatchGeometry
from doap.geometry.homographies import transform_points
from doap.images.reading import find_photos, read_grey
from doap.images.warping import view_from_side
from doap.parallel import open_engine
from doap.types import Grey
from machine import write_result
from unrelated_pairs import UnrelatedPair, find_false, last_step

TILTS = (1.0, 2.0, 4.0, 6.0, 8.0)
REPEATS = 7  # of an easy pair
MAX_ERROR = 5.0  # pixels, of the corners
MIN_KEYPOINTS = 300  # photos with fewer are skipped


@dataclass(frozen=True)
class Pair:
    """A photo, a view of it from the side, and the homography from the first to the second."""

    first: Grey
    second: Grey
    homography: NDArray[np.float64]

    def is_solved(self, estimate: NDArray[np.float64] | None) -> bool:
        """Return whether a homography maps the corners of the first image where they are."""
        if estimate is None:
            return False
        corners = corner_points(self.first.shape)
        error = transform_points(corners, estimate) - transform_points(corners, self.homography)
        return bool(np.linalg.norm(error, axis=1).max() <= MAX_ERROR)


@dataclass
class Outcome:
    """Counts and times of the pairs of one tilt."""

    pairs: int = 0
    plain: int = 0
    wide: int = 0
    wrong: int = 0  # verified by the wide search, but not solved
    steps: Counter[str] = field(default_factory=Counter)


class StepTimes:
    """Progress callback that measures the seconds of each step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._step, self._start = "", 0.0

    def __call__(self, step: str, _done: int, _total: int | None) -> None:
        """Begin a step if it is a new one."""
        if step != self._step:
            self.close()
            self._step, self._start = step, time.perf_counter()

    def close(self) -> None:
        """End the last step."""
        if self._step:
            self.seconds[self._step] = time.perf_counter() - self._start


def corner_points(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the corners (x, y) of an image."""
    height, width = shape
    return np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], np.float64)


def tilted_pair(photo: Grey, tilt: float, random: np.random.Generator) -> Pair:
    """Make a view of a photo from the side, about a random axis and turned at random."""
    axis, turn = random.uniform(0, 2 * math.pi, 2)
    return Pair(photo, *view_from_side(photo, tilt, axis, turn))


def sample_photos(folder: Path, count: int, size: int, random: np.random.Generator) -> list[Grey]:
    """Sample photos with enough keypoints, reduced to `size` pixels on the longer side."""
    paths = find_photos([folder])
    photos: list[Grey] = []
    for index in random.permutation(len(paths)):
        if len(photos) == count:
            break
        photo = read_grey(paths[index])
        factor = size / max(photo.shape)
        if factor < 1:
            photo = np.asarray(cv2.resize(photo, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA), np.uint8)
        if len(cv2.SIFT.create().detect(photo, None)) >= MIN_KEYPOINTS:
            photos.append(photo)
    return photos


def measure_tilts(
    photos: Sequence[Grey], model: doap.Descriptor, tilts: Sequence[float], device: str, random: np.random.Generator
) -> tuple[dict[str, Outcome], dict[str, float]]:
    """Match every photo with a view of it at every tilt; return the outcome per tilt, and mean seconds per step."""
    outcomes: dict[str, Outcome] = defaultdict(Outcome)
    seconds: dict[str, list[float]] = defaultdict(list)
    for number, photo in enumerate(photos):
        for tilt in tilts:
            pair, outcome = tilted_pair(photo, tilt, random), outcomes[f"{tilt:g}"]
            first, second = (doap.detect_and_describe(image, model) for image in (pair.first, pair.second))
            plain = doap.match(first, second, geometry="homography", device=device)
            times = StepTimes()
            wide = doap.match_wide(pair.first, pair.second, model, geometry="homography", device=device, progress=times)
            times.close()
            for step, duration in times.seconds.items():
                seconds[step].append(duration)
            outcome.pairs += 1
            outcome.plain += pair.is_solved(plain.matrix)
            outcome.wide += pair.is_solved(wide.matches.matrix)
            outcome.wrong += wide.step is not None and not pair.is_solved(wide.matches.matrix)
            outcome.steps["none" if wide.step is None else last_step(wide.tilts)] += 1
        print(f"photo {number + 1} of {len(photos)}", end="\r", flush=True)
    return dict(outcomes), {step: statistics.mean(values) for step, values in seconds.items()}


def easy_ratio(pair: Pair, model: doap.Descriptor, device: str) -> float:
    """Return the time of `match_wide` over that of plain matching for a pair that this solves, the shortest of each."""
    plain, wide = [], []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        first, second = (doap.detect_and_describe(image, model) for image in (pair.first, pair.second))
        doap.match(first, second, geometry="homography", device=device)
        middle = time.perf_counter()
        result = doap.match_wide(pair.first, pair.second, model, geometry="homography", device=device)
        plain.append(middle - begin)
        wide.append(time.perf_counter() - middle)
        assert result.step == 0
    return min(wide) / min(plain)


def count_false(
    photos: Sequence[Grey], model: str, pairs: int, device: str, workers: int | None = None
) -> dict[str, int]:
    """Match pairs of different photos, by either geometry in turn, and count those that each step verifies."""
    random = np.random.default_rng(1)
    chosen = [random.choice(len(photos), 2, replace=False).tolist() for _ in range(pairs)]
    geometries: tuple[MatchGeometry, ...] = ("fundamental", "homography")
    tasks = (
        UnrelatedPair(photos[i], photos[j], geometries[number % 2], model, device)
        for number, (i, j) in enumerate(chosen)
    )
    counts: Counter[str] = Counter()
    with open_engine("local", workers) as engine:
        for number, step in enumerate(engine.map(find_false, tasks)):
            if step is not None:
                counts[step] += 1
                print("photos {} and {} are verified: {}".format(*chosen[number], step))
            print(f"unrelated pair {number + 1} of {pairs}: {dict(counts)}", flush=True)
    return dict(counts)


def main() -> None:
    """Measure, print the table and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, help="folder of photos")
    parser.add_argument("--model", default="doap-128")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=10, help="number of photos; of unrelated pairs, up to 100")
    parser.add_argument("--size", type=int, default=480, help="longer side of the photos in pixels")
    parser.add_argument("--tilts", type=float, nargs="+", default=TILTS)
    parser.add_argument("--unrelated", type=int, metavar="N", help="match N pairs of different photos instead")
    parser.add_argument("--workers", type=int, help="processes for unrelated pairs; by default one per core")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    settings = {"model": options.model, "size": options.size}
    device = torch.device(options.device).type
    if options.unrelated:
        photos = sample_photos(options.photos, 100, options.size, random)
        false = count_false(photos, options.model, options.unrelated, options.device, options.workers)
        print(f"{sum(false.values())} of {options.unrelated} unrelated pairs verified")
        result = {**settings, "photos": len(photos), "pairs": options.unrelated, "verified": false}
        write_result(f"wide-unrelated-{options.model}", device, result)
        return
    model = doap.load(options.model, device=options.device)
    photos = sample_photos(options.photos, options.count, options.size, random)
    outcomes, seconds = measure_tilts(photos, model, options.tilts, options.device, random)
    print("| tilt | pairs | plain | wide | wrong | solved by |\n|---:|---:|---:|---:|---:|---|")
    for tilt, row in outcomes.items():
        steps = ", ".join(f"{step} {count}" for step, count in row.steps.most_common())
        fractions = " | ".join(f"{100 * count / row.pairs:.0f} %" for count in (row.plain, row.wide))
        print(f"| {tilt} | {row.pairs} | {fractions} | {row.wrong} | {steps} |")
    ratio = easy_ratio(tilted_pair(photos[0], 1.0, random), model, options.device)
    print(f"an easy pair takes {ratio:.3f} times as long as by plain matching")
    print("seconds per step:", {step: round(value, 2) for step, value in seconds.items()})
    names = ("pairs", "plain", "wide", "wrong", "steps")
    rows = {tilt: {name: getattr(row, name) for name in names} for tilt, row in outcomes.items()}
    result = {**settings, "photos": len(photos), "tilts": rows, "easy_time_ratio": ratio, "seconds": seconds}
    write_result(f"wide-{options.model}", device, result)


if __name__ == "__main__":
    main()
