"""What a scene gives: groups of frames, from one photo, from a view that stood still, or from overlapping photos."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from doap.images.detectors import DETECTORS
from doap.images.extraction import Pyramid, extract_patches
from doap.images.frames import transform_frames
from doap.images.overlaps import Ids, overlapping_groups
from doap.images.reconstruction.colmap import has_colmap, structure_tracks
from doap.images.reconstruction.static import edge_map, register_static
from doap.images.reconstruction.tracks import (
    PhotoFeatures,
    PhotoPair,
    Tracks,
    homography_tracks,
    match_photos,
    photo_features,
)
from doap.images.selection import spread
from doap.types import Frames, Grey

# Detectors whose frames are pooled, and the share of the wanted frames that each may propose.
POOL = {"dog": 1.5, "harris-affine": 0.75, "hessian": 1.0}
MIN_GROUPS = 20  # a scene of fewer is not worth its place
MIN_CORRELATION = 0.5  # of two patches that show the same thing under different light
MIN_CONTRAST = 2.0  # grey levels: what is flatter is burnt out or black
DETECTING = 4  # photos of a still view that frames are detected in
CHECKED_SIZE = 32


@dataclass(frozen=True)
class SceneFrames:
    """Groups of frames of a scene.

    Attributes:
        source: "views", "static" or "tracks".
        photos: (N,) the photo of each frame, a place among the scene's photos.
        frames: (N, 2, 3).
        groups: (N,) integers 0..G-1.
        overlaps: (P, 2) groups that overlap in a photo, or in space.
        angles: (G,) degrees between the directions a group was seen from, 0 where that is not known.
        note: how it was found, in words.
    """

    source: str
    photos: Ids
    frames: Frames
    groups: Ids
    overlaps: Ids
    angles: NDArray[np.float64]
    note: str


def pooled_frames(image: Grey, limit: int) -> Frames:
    """Frames of several detectors, spread over the picture and over scale; (N, 2, 3), at most `limit`."""
    found = [DETECTORS[name](image, round(share * limit)) for name, share in POOL.items()]
    # Detectors take turns, each with its strongest first: their strengths have no common unit.
    turns = np.argsort(np.concatenate([np.arange(len(f)) / POOL[n] for n, f in zip(POOL, found, strict=True)]))
    height, width = image.shape
    return spread(np.concatenate(found)[turns], limit, (height, width))


def views_of(image: Grey, limit: int, photo: int = 0) -> SceneFrames | None:
    """Groups of a single frame each, to be seen under jittered views; None if the photo has too few."""
    frames = pooled_frames(image, limit)
    count = len(frames)
    if count < MIN_GROUPS:
        return None
    photos, groups = np.full(count, photo, np.int64), np.arange(count)
    overlaps = overlapping_groups(photos, frames, groups)
    return SceneFrames("views", photos, frames, groups, overlaps, np.zeros(count), f"{count:,} frames of one photo")


def static_view(images: Sequence[Grey], limit: int, extent: float) -> SceneFrames | None:
    """The same frames in pictures of a view that stood still, wherever both show the same thing.

    Args:
        images: the pictures, of one size.
        limit: groups at most.
        extent: of the patches that are compared.

    Returns:
        None where the pictures do not register, or agree on too few frames.
    """
    detecting = np.unique(np.linspace(0, len(images) - 1, DETECTING).round().astype(int))
    detected = {number: pooled_frames(images[number], limit) for number in detecting}
    reference = max(detected, key=lambda number: len(detected[number]))
    edges = edge_map(images[reference])
    motions = {
        number: np.eye(3) if number == reference else register_static(edges, edge_map(image))
        for number, image in enumerate(images)
    }
    registered = {number: motion for number, motion in motions.items() if motion is not None}
    pooled = [
        transform_frames(detected[n], np.linalg.inv(registered[n]).astype(np.float64))
        for n in detected
        if n in registered
    ]
    height, width = images[reference].shape
    frames = spread(np.concatenate(pooled), limit, (height, width))
    placed = {number: transform_frames(frames, motion) for number, motion in registered.items()}
    shown = _agreeing([images[n] for n in placed], list(placed.values()), extent)
    kept = shown.sum(0) >= 2
    if kept.sum() < MIN_GROUPS:
        return None
    picture, place = np.nonzero(shown[:, kept])
    photos = np.array(list(placed), np.int64)[picture]
    observed = np.stack(list(placed.values()))[:, kept][picture, place]
    overlaps = overlapping_groups(photos, observed, place)
    note = f"{int(kept.sum()):,} frames of {len(registered)} of {len(images)} pictures of a still view"
    return SceneFrames("static", photos, observed, place, overlaps, np.zeros(int(kept.sum())), note)


def tracked_scene(images: Sequence[Grey], seed: int) -> SceneFrames | None:
    """Points tracked through overlapping photos, by structure from motion or by homographies.

    Homographies serve where most pairs of photos show no depth, where the reconstruction fails, and where pycolmap
    is not installed.

    Returns:
        None where neither gives enough points.
    """
    features = [photo_features(image) for image in images]
    pairs = match_photos(features)
    tracks = _tracks(features, pairs, seed)
    if tracks is None or len(tracks.angles) < MIN_GROUPS:
        return None
    frames = np.stack([features[p].frames[f] for p, f in zip(tracks.photos, tracks.features, strict=True)])
    overlaps = np.concatenate([overlapping_groups(tracks.photos, frames, tracks.points), tracks.near])
    count = len(np.unique(tracks.photos))
    note = f"{len(tracks.angles):,} points of {count} of {len(images)} photos by {tracks.method}"
    return SceneFrames("tracks", tracks.photos, frames, tracks.points, np.unique(overlaps, axis=0), tracks.angles, note)


def _tracks(features: list[PhotoFeatures], pairs: list[PhotoPair], seed: int) -> Tracks | None:
    flat = 2 * sum(pair.flat for pair in pairs) > len(pairs)
    if not flat and has_colmap():
        found = structure_tracks(features, pairs, seed)
        if found is not None:
            return found
    return homography_tracks(pairs)


def _agreeing(images: Sequence[Grey], frames: Sequence[Frames], extent: float) -> NDArray[np.bool_]:
    """Which pictures show what the others show at each frame, (K, N).

    A frame may be burnt out, black or hidden by a passer-by in some pictures. Of the patches of a frame, the one
    that resembles the others most is taken as its true look, and those that resemble it are kept.
    """
    looks = []
    for image, placed in zip(images, frames, strict=True):
        patches = extract_patches(Pyramid(image), placed, CHECKED_SIZE, extent).reshape(len(placed), -1)
        centred = patches - patches.mean(1, keepdims=True, dtype=np.float32)
        spread_ = np.linalg.norm(centred, axis=1, keepdims=True)
        flat = spread_ < MIN_CONTRAST * CHECKED_SIZE
        looks.append(np.where(flat, 0, centred / np.maximum(spread_, 1e-6)))
    alike = np.einsum("knd,lnd->nkl", np.stack(looks), np.stack(looks))
    truest = alike.sum(2).argmax(1)
    return np.asarray(alike[np.arange(len(truest)), truest].T >= MIN_CORRELATION)
