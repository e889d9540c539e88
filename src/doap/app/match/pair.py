"""Two pictures matched by several methods, and matched again with as little work as a change of options needs."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from doap.app.match.pictures import Picture
from doap.app.methods import open_method
from doap.choices import DEFAULT_DETECTOR, Geometry
from doap.errors import DoapError
from doap.features import Features, Matches, detect_and_describe, match, match_wide
from doap.types import Grey, StepProgress

LONGEST_SIDE = 1600  # pixels at which pictures are described; larger ones are reduced

Value = TypeVar("Value")


@dataclass(frozen=True)
class MatchOptions:
    """What the visitor chose.

    Attributes:
        methods: Names of the methods.
        keypoints: Number of strongest keypoints per picture.
        ratio: Largest ratio of a distance to the second distance; None for no test.
        geometry: Geometry to verify.
        threshold: Largest error of an inlier in pixels.
        wide: Synthesise tilted views where plain matching fails.
    """

    methods: tuple[str, ...]
    keypoints: int = 2000
    ratio: float | None = None
    geometry: Geometry = "fundamental"
    threshold: float = 1.5
    wide: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.keypoints <= 10_000:
            raise DoapError(f"the number of keypoints must be 1 to 10,000, not {self.keypoints}")


@dataclass(frozen=True, eq=False)
class MethodResult:
    """Features and matches of one method.

    Attributes:
        method: Name of the method.
        bytes: Bytes per descriptor.
        extent: Half the side of a patch in units of its frame's scale.
        first: Features of the first picture.
        second: Features of the second picture.
        nearest: Mutual nearest neighbours, neither filtered nor verified; None for wide matches.
        matches: Matches with the options.
        milliseconds: Duration of each step.
        note: What wide matching did; empty for plain matching.
    """

    method: str
    bytes: int
    extent: float
    first: Features
    second: Features
    nearest: Matches | None
    matches: Matches
    milliseconds: dict[str, float]
    note: str = ""

    @property
    def is_binary(self) -> bool:
        """Whether distances are numbers of bits."""
        return self.first.descriptors.dtype == np.uint8


def match_pictures(
    pictures: tuple[Picture, Picture],
    images: tuple[Grey, Grey],
    options: MatchOptions,
    device: str,
    progress: StepProgress,
) -> list[MethodResult]:
    """Match two pictures by all methods of the options.

    Args:
        pictures: The pictures, whose names stand in messages.
        images: The grey images in full size.
        options: What the visitor chose.
        device: Device of the models.
        progress: Called as `progress(step, done, total)` between parts of the work.

    Raises:
        DoapError: If a picture has no keypoint.
    """
    match_images = _match_wide if options.wide else _match_plain
    results = [match_images(images, method, options, device, progress) for method in options.methods]
    for picture, features in zip(pictures, (results[0].first, results[0].second), strict=True):
        if not len(features):
            raise DoapError(f"{picture.name}: no keypoint found; is it flat or tiny?")
    return results


def filter_and_verify(result: MethodResult, options: MatchOptions) -> MethodResult:
    """Apply the ratio, the geometry and the threshold of the options to neighbours that were found before."""
    assert result.nearest is not None, "wide matches depend on all options"
    nearest = result.nearest
    keep = np.ones(len(nearest), bool)
    if options.ratio is not None:
        keep = nearest.distances < options.ratio * nearest.second_distances
    kept = Matches(
        nearest.indices[keep], nearest.distances[keep], nearest.second_distances[keep], np.ones(keep.sum(), bool)
    )
    matches, spent = _timed(lambda: kept.verify(result.first, result.second, options.geometry, options.threshold))
    return replace(result, matches=matches, milliseconds={**result.milliseconds, "verify": spent})


def _match_plain(
    images: tuple[Grey, Grey], method: str, options: MatchOptions, device: str, progress: StepProgress
) -> MethodResult:
    total = len(images) + 1
    progress(f"{method}: loading", 0, total)
    model = open_method(method, device)
    features: list[Features] = []
    start = time.perf_counter()
    for number, image in enumerate(images):
        progress(f"{method}: picture {number + 1}", number, total)
        features.append(detect_and_describe(image, model, max_keypoints=options.keypoints, max_size=LONGEST_SIDE))
    described = 1000 * (time.perf_counter() - start)
    progress(f"{method}: matching", len(images), total)
    first, second = features
    nearest, searched = _timed(lambda: match(first, second, geometry=None, device=device))
    times = {"describe": described, "match": searched}
    extent = model.extent_for(DEFAULT_DETECTOR)
    return filter_and_verify(MethodResult(method, model.bytes, extent, first, second, nearest, nearest, times), options)


def _match_wide(
    images: tuple[Grey, Grey], method: str, options: MatchOptions, device: str, progress: StepProgress
) -> MethodResult:
    progress(f"{method}: loading", 0, None)
    model = open_method(method, device)
    result, spent = _timed(
        lambda: match_wide(
            *images,
            model,
            max_keypoints=options.keypoints,
            max_size=LONGEST_SIDE,
            ratio=options.ratio,
            geometry=options.geometry,
            threshold=options.threshold,
            device=device,
            progress=lambda step, done, total: progress(f"{method}: {step}", done, total),
        )
    )
    tilts = ", ".join(f"{tilt:.3g}" for tilt in result.tilts)
    note = f"views with tilts {tilts}" if tilts else "plain matching sufficed"
    if result.step is None:
        note = f"no geometry; {note}"
    extent = model.extent_for(DEFAULT_DETECTOR)
    return MethodResult(
        method, model.bytes, extent, result.first, result.second, None, result.matches, {"wide": spent}, note
    )


def _timed(function: Callable[[], Value]) -> tuple[Value, float]:
    """Return the value of a function, and the milliseconds that it took."""
    start = time.perf_counter()
    return function(), 1000 * (time.perf_counter() - start)
