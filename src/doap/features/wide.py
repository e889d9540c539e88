"""Matching with a wide baseline: views are synthesised step by step until the pair is verified."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from doap.choices import DEFAULT_DETECTOR, MatchGeometry
from doap.errors import DoapError
from doap.features.describing import DetectionOptions
from doap.features.features import Features
from doap.features.image_input import ImageLike, read_image, shrink_image, split_images
from doap.features.matches import Matches
from doap.features.matching import match
from doap.features.views import View, describe_views, rescale_frames
from doap.geometry.robust import Cameras, verify
from doap.images.detection import CustomDetector, FrameShape, detector_name
from doap.images.tilts import largest_side, tilt_image, turns
from doap.matching.inconsistent_neighbours import distinct_matches, inconsistent_neighbour_distances
from doap.networks.descriptor import Descriptor, check_device, check_model
from doap.types import Frames, Grey, StepProgress, no_step_progress

TILTS = (2.0, 4.0, 8.0, math.sqrt(2), 2 * math.sqrt(2), 4 * math.sqrt(2))
RATIO = 0.9  # of matches among views, where none is given
CONSISTENT_RADIUS = 10.0  # pixels: nearer features are no second neighbours of the ratio test
SAME_MATCH = 3.0  # pixels at both ends, within which matches are one
SAME_POINT = 1.0  # pixels at one end, within which only the best match is kept
ENOUGH = 30  # verified matches; a step that finds fewer is followed by one more
# log10 of the number of false alarms that a step may have: below that of plain matching, because the matches of
# neighbouring views are not independent, and their number of false alarms is underestimated.
MAX_STEP_LOG_NFA = -6.0


@dataclass(frozen=True, eq=False)
class WideMatches:
    """Result of `match_wide`.

    Attributes:
        first: Features of the first image, of all views so far, in pixels of the image.
        second: Features of the second image.
        matches: Matches of these features with the geometry.
        step: Number of the step that verified the pair, 0 for plain matching; None if none did.
        tilts: Tilts of the views that were synthesised, in order; empty after plain matching.
    """

    first: Features
    second: Features
    matches: Matches
    step: int | None
    tilts: tuple[float, ...]


def match_wide(
    first: ImageLike,
    second: ImageLike,
    model: Descriptor,
    *,
    detector: str | CustomDetector = DEFAULT_DETECTOR,
    frames: FrameShape = "detected",
    max_keypoints: int | None = 2000,
    min_response: float = 0.0,
    max_size: int | None = None,
    mutual: bool = True,
    ratio: float | None = None,
    max_distance: float | None = None,
    geometry: MatchGeometry = "fundamental",
    threshold: float = 1.5,
    cameras: Cameras | None = None,
    device: str | torch.device = "cpu",
    progress: StepProgress = no_step_progress,
) -> WideMatches:
    """Match two images; while they do not match, with ever more tilted views of both (ASIFT, MODS).

    Step 0 is `detect_and_describe` and `match`. Each later step adds the views of one tilt, `TILTS`, in turns 72 / tilt
    degrees apart, and matches the features of all views so far. Of these matches, those that repeat others within a
    few pixels are left out, and second nearest neighbours lie at another place of the image. A geometry of a later
    step is accepted below 1e-6 false alarms, where plain matching accepts one below 1e-3. If fewer than 30 matches
    agree with it, or with that of step 0, one more step is tried, and the result with more of them is returned.

    Args:
        first: First image; see `detect_and_describe`.
        second: Second image.
        model: Model from `doap.load`.
        detector: As in `detect_and_describe`, like the following.
        frames: "detected", "upright", "baumberg" or "learned".
        max_keypoints: Number of strongest frames to keep per image; of a view of tilt t, 1 / t of it.
        min_response: Smallest response of a frame.
        max_size: Longest side at which keypoints are detected and described.
        mutual: As in `match`, like the following.
        ratio: Largest ratio of the distance to that of the second nearest neighbour; None means no test in step 0, and
            0.9 later.
        max_distance: Largest distance of a match.
        geometry: "fundamental", "homography" or "essential".
        threshold: Largest error of an inlier, in pixels.
        cameras: Intrinsics for "essential".
        device: Device of the search.
        progress: Callback, called as `progress(step, done, total)` per view.

    Raises:
        DoapError: If an image cannot be read, or an option is out of range.

    Example:
        >>> import doap, skimage
        >>> image = skimage.data.camera()
        >>> result = doap.match_wide(image, image[:, ::4], doap.load("doap-demo-128"), geometry="homography")
        >>> result.step, bool(abs(result.matches.matrix[0, 0] / result.matches.matrix[2, 2] - 0.25) < 0.01)
        (1, True)
    """
    check_model(model)
    for image in (first, second):
        if split_images(image) is not None:
            raise DoapError("match_wide takes two single images; call it for each pair")
    if geometry is None:
        raise DoapError("wide matching needs a geometry to verify: fundamental, homography or essential")
    detection = DetectionOptions(detector, frames, max_keypoints, min_response, max_size)
    search = _Search(mutual, ratio, max_distance, geometry, threshold, cameras, device)
    progress("plain", 0, None)
    a, b = (detection.describe([image], [None], model)[0] for image in (first, second))
    matches = search.plain(a, b)
    result = WideMatches(a, b, matches, None if matches.matrix is None else 0, ())
    if _count(result) >= ENOUGH or not len(a) or not len(b):
        return result
    sources = [_Source(image, detection, model) for image in (first, second)]
    for step, tilt in enumerate(TILTS, 1):
        verified = None if result.step is None else result
        tick = _ticker(progress, f"tilt {tilt:.3g}", 2 * len(turns(tilt)))
        a, b = (_join([old, *source.describe(tilt, tick)]) for old, source in zip((a, b), sources, strict=True))
        matches = search.pooled(a, b)
        result = WideMatches(a, b, matches, None if matches.matrix is None else step, TILTS[:step])
        if verified is not None:
            return max(verified, result, key=_count)
        if _count(result) >= ENOUGH:
            return result
    return result


def _count(result: WideMatches) -> int:
    """Return the number of verified matches."""
    return int(result.matches.inliers.sum())


@dataclass(frozen=True)
class _Search:
    """Options of `match`."""

    mutual: bool
    ratio: float | None
    max_distance: float | None
    geometry: MatchGeometry
    threshold: float
    cameras: Cameras | None
    device: str | torch.device

    def plain(self, first: Features, second: Features) -> Matches:
        """Match features of two images."""
        return match(
            first,
            second,
            mutual=self.mutual,
            ratio=self.ratio,
            max_distance=self.max_distance,
            geometry=self.geometry,
            threshold=self.threshold,
            cameras=self.cameras,
            device=self.device,
        )

    def pooled(self, first: Features, second: Features) -> Matches:
        """Match features of several views of two images, with many features per point."""
        matched = match(
            first, second, mutual=self.mutual, max_distance=self.max_distance, geometry=None, device=self.device
        )
        seconds = inconsistent_neighbour_distances(
            first.descriptors,
            second.descriptors,
            matched.indices,
            second.keypoints,
            CONSISTENT_RADIUS,
            check_device(self.device),
        )
        kept = np.flatnonzero(matched.distances < (RATIO if self.ratio is None else float(self.ratio)) * seconds)
        best_first = kept[np.argsort(matched.distances[kept] / seconds[kept], kind="stable")]
        distinct = distinct_matches(*matched.points(first, second), best_first, SAME_MATCH, SAME_POINT)
        matches = Matches(
            matched.indices[distinct], matched.distances[distinct], seconds[distinct], np.zeros(len(distinct), bool)
        )
        result = verify(*matches.points(first, second), second.size, self.geometry, self.threshold, self.cameras)
        if result.matrix is None or result.log_nfa >= MAX_STEP_LOG_NFA:
            return replace(matches, geometry=self.geometry)
        return replace(
            matches,
            inliers=result.inliers,
            geometry=self.geometry,
            matrix=result.matrix,
            rotation=result.rotation,
            translation=result.translation,
        )


class _Source:
    """An image of which views are synthesised.

    Args:
        image: The image.
        detection: Options of detection in the image.
        model: Model that describes.
    """

    def __init__(self, image: ImageLike, detection: DetectionOptions, model: Descriptor) -> None:
        grey = read_image(image)
        self._size = grey.shape[0], grey.shape[1]
        limit = largest_side(self._size)
        small = shrink_image(grey, limit if detection.max_size is None else min(limit, detection.max_size))
        self._image: Grey = small.cpu().numpy() if isinstance(small, Tensor) else small
        self._detection = detection
        self._model = model

    def describe(self, tilt: float, tick: Callable[[], None]) -> list[Features]:
        """Describe the views of a tilt; the features are in pixels of the image. `tick` is called per view."""
        mapped: list[Frames] = []
        extent = self._model.extent_for(detector_name(self._detection.detector))
        described = describe_views(self._detect(tilt, mapped, tick), self._model, extent)
        return [
            replace(features, frames=frames, size=self._size)
            for features, frames in zip(described, mapped, strict=True)
        ]

    def _detect(self, tilt: float, mapped: list[Frames], tick: Callable[[], None]) -> Iterator[View]:
        """Yield the views of a tilt with their frames, and append these, in pixels of the image, to `mapped`."""
        limit = self._detection.max_keypoints
        options = replace(
            self._detection, max_keypoints=None if limit is None else math.ceil(limit / tilt), max_size=None
        )
        for turn in turns(tilt):
            tilted = tilt_image(self._image, tilt, turn)
            if tilted is not None:
                (view,) = options.detect([tilted.image], [tilted.mask], self._model)
                kept = tilted.contains(view.frames)
                frames = tilted.orient(view.frames[kept])
                mapped.append(rescale_frames(tilted.to_original(frames), self._image.shape, self._size))
                yield replace(view, frames=frames, responses=None if view.responses is None else view.responses[kept])
            tick()


def _join(parts: list[Features]) -> Features:
    """Join features of views of one image."""
    responses = [part.responses for part in parts if part.responses is not None]
    return replace(
        parts[0],
        frames=np.concatenate([part.frames for part in parts]),
        descriptors=np.concatenate([part.descriptors for part in parts]),
        responses=np.concatenate(responses) if len(responses) == len(parts) else None,
    )


def _ticker(progress: StepProgress, step: str, total: int) -> Callable[[], None]:
    """Return a function that reports one more unit of a step."""
    done = itertools.count(1)
    progress(step, 0, total)
    return lambda: progress(step, next(done), total)
