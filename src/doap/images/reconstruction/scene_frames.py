"""Groups of frames of a scene: from a single photo, from images of a static camera, or from overlapping photos."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from doap.errors import inflect
from doap.images.detectors import DETECTORS
from doap.images.extraction import Pyramid, extract_patches
from doap.images.frames import transform_frames
from doap.images.reconstruction.colmap import has_colmap, reconstruct_tracks
from doap.images.reconstruction.overlaps import Ids, find_overlapping_groups
from doap.images.reconstruction.photo_features import FEATURES, PhotoFeatures
from doap.images.reconstruction.static import edge_map, register_static
from doap.images.reconstruction.tracks import PhotoPair, Tracks, chain_tracks
from doap.images.selection import select_frames
from doap.types import Frames, Grey

# Detectors whose frames are pooled, and the maximum number of candidates of each relative to the requested frames.
POOL = {"dog": 1.5, "harris-affine": 0.75, "hessian": 1.0}
MIN_GROUPS = 20  # scenes with fewer are dropped
MIN_CORRELATION = 0.5  # of two patches with the same content under different light
MIN_CONTRAST = 2.0  # grey levels: flatter patches are over- or underexposed
DETECTION_IMAGES = 4  # images of a static camera in which frames are detected
PATCH_SIZE = 32  # of the patches that are compared


@dataclass(frozen=True)
class SceneFrames:
    """Groups of frames of a scene.

    Attributes:
        source: "views", "static" or "tracks".
        photos: (N,) index of the photo of each frame among the scene's photos.
        frames: (N, 2, 3).
        groups: (N,) integers 0..G-1.
        overlaps: (P, 2) pairs of groups that overlap in a photo or in space.
        angles: (G,) degrees between the viewing directions of a group, 0 if unknown.
        note: Description of the origin.
    """

    source: str
    photos: Ids
    frames: Frames
    groups: Ids
    overlaps: Ids
    angles: NDArray[np.float64]
    note: str


def detect_pooled_frames(image: Grey, limit: int, dog: Frames | None = None) -> Frames:
    """Detect frames with several detectors, spread over the image and over scale.

    Args:
        image: (H, W) uint8.
        limit: Maximum number of frames.
        dog: Strongest DoG frames of the image, strongest first, if they are known; used if they are enough.

    Returns:
        (N, 2, 3), N <= `limit`.
    """
    wanted = {name: round(factor * limit) for name, factor in POOL.items()}
    known = {} if dog is None or wanted["dog"] > FEATURES else {"dog": dog[: wanted["dog"]]}
    detected = [known[name] if name in known else DETECTORS[name](image, count) for name, count in wanted.items()]
    # The responses of different detectors are not comparable: merge by rank within each detector.
    ranks = np.concatenate([np.arange(len(f)) / POOL[n] for n, f in zip(POOL, detected, strict=True)])
    height, width = image.shape
    return select_frames(np.concatenate(detected)[np.argsort(ranks)], limit, (height, width))


def find_single_frames(image: Grey, limit: int, photo: int = 0, dog: Frames | None = None) -> SceneFrames | None:
    """Detect frames of a single photo, each a group of its own; its other views are jittered.

    Args:
        image: The photo.
        limit: Maximum number of groups.
        photo: Index of the photo in its scene.
        dog: See `detect_pooled_frames`.

    Returns:
        None if the photo has too few frames.
    """
    frames = detect_pooled_frames(image, limit, dog)
    count = len(frames)
    if count < MIN_GROUPS:
        return None
    photos, groups = np.full(count, photo, np.int64), np.arange(count)
    overlaps = find_overlapping_groups(photos, frames, groups)
    return SceneFrames("views", photos, frames, groups, overlaps, np.zeros(count), f"{count:,} frames of one photo")


def find_static_frames(
    images: Sequence[Grey], limit: int, extent: float, dog: Sequence[Frames] | None = None
) -> SceneFrames | None:
    """Find the same frames in images of a static camera, where the images agree.

    Args:
        images: Images of equal size.
        limit: Maximum number of groups.
        extent: Extent of the patches that are compared.
        dog: DoG frames of each image; see `detect_pooled_frames`.

    Returns:
        None if the images cannot be registered, or agree on too few frames.
    """
    sampled = np.unique(np.linspace(0, len(images) - 1, DETECTION_IMAGES).round().astype(int))
    detected = {
        index: detect_pooled_frames(images[index], limit, None if dog is None else dog[index]) for index in sampled
    }
    reference = max(detected, key=lambda index: len(detected[index]))
    motions = _register_all(images, reference)
    pooled = [
        transform_frames(detected[index], np.linalg.inv(motions[index]).astype(np.float64))
        for index in detected
        if index in motions
    ]
    height, width = images[reference].shape
    frames = select_frames(np.concatenate(pooled), limit, (height, width))
    mapped = {index: transform_frames(frames, motion) for index, motion in motions.items()}
    agrees = _find_agreement([images[index] for index in mapped], list(mapped.values()), extent)
    is_group = agrees.sum(0) >= 2
    count = int(is_group.sum())
    if count < MIN_GROUPS:
        return None
    image_indices, groups = np.nonzero(agrees[:, is_group])
    photos = np.array(list(mapped), np.int64)[image_indices]
    observed = np.stack(list(mapped.values()))[:, is_group][image_indices, groups]
    overlaps = find_overlapping_groups(photos, observed, groups)
    note = f"{count:,} frames of {len(motions)} of {len(images)} {inflect(len(images), 'image')} of a static camera"
    return SceneFrames("static", photos, observed, groups, overlaps, np.zeros(count), note)


def find_tracked_frames(features: Sequence[PhotoFeatures], pairs: Sequence[PhotoPair], seed: int) -> SceneFrames | None:
    """Track points through overlapping photos, by structure from motion or by homographies.

    Homographies are used if most pairs of photos are planar, if the reconstruction fails, or if pycolmap is not
    installed.

    Args:
        features: Features of each photo.
        pairs: Verified matches of the photos.
        seed: Seed of the reconstruction.

    Returns:
        None if neither gives enough points.
    """
    tracks = _track(features, pairs, seed)
    if tracks is None or len(tracks.angles) < MIN_GROUPS:
        return None
    frames = np.stack([features[p].frames[f] for p, f in zip(tracks.photos, tracks.features, strict=True)])
    overlaps = np.concatenate([find_overlapping_groups(tracks.photos, frames, tracks.points), tracks.close_points])
    count = len(np.unique(tracks.photos))
    note = f"{len(tracks.angles):,} points of {count} of {len(features)} photos by {tracks.method}"
    return SceneFrames("tracks", tracks.photos, frames, tracks.points, np.unique(overlaps, axis=0), tracks.angles, note)


def _register_all(images: Sequence[Grey], reference: int) -> dict[int, NDArray[np.float64]]:
    """Return the motions from the reference to the images that can be registered, by index."""
    edges = edge_map(images[reference])
    motions = {
        index: np.eye(3) if index == reference else register_static(edges, edge_map(image))
        for index, image in enumerate(images)
    }
    return {index: motion for index, motion in motions.items() if motion is not None}


def _track(features: Sequence[PhotoFeatures], pairs: Sequence[PhotoPair], seed: int) -> Tracks | None:
    is_planar = 2 * sum(pair.is_planar for pair in pairs) > len(pairs)
    if not is_planar and has_colmap():
        tracks = reconstruct_tracks(features, pairs, seed)
        if tracks is not None:
            return tracks
    return chain_tracks(pairs)


def _find_agreement(images: Sequence[Grey], frames: Sequence[Frames], extent: float) -> NDArray[np.bool_]:
    """Return which images show the common content at each frame, (K, N).

    A frame may be overexposed, black or occluded in some images. The patch of a frame with the largest sum of
    correlations with the others is its reference; patches that correlate with the reference agree.
    """
    normalised = []
    for image, mapped in zip(images, frames, strict=True):
        patches = extract_patches(Pyramid(image), mapped, PATCH_SIZE, extent).reshape(len(mapped), -1)
        centred = patches - patches.mean(1, keepdims=True, dtype=np.float32)
        norms = np.linalg.norm(centred, axis=1, keepdims=True)
        is_flat = norms < MIN_CONTRAST * PATCH_SIZE
        normalised.append(np.where(is_flat, 0, centred / np.maximum(norms, 1e-6)))
    correlation = np.einsum("knd,lnd->nkl", np.stack(normalised), np.stack(normalised))
    reference = correlation.sum(2).argmax(1)
    return np.asarray(correlation[np.arange(len(reference)), reference].T >= MIN_CORRELATION)
