"""Sets without the photos and sequences that have no item."""

import numpy as np

from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.groups import Ids
from doap.datasets.sets.patch_set import PatchSet


def trim(data: PatchSet | FrameSet) -> PatchSet | FrameSet:
    """Return the set without photos and sequences that have no item, renumbered; group ids are unchanged."""
    return trim_frames(data) if isinstance(data, FrameSet) else trim_patches(data)


def trim_frames(data: FrameSet) -> FrameSet:
    """Return the set without photos and sequences that have no frame, renumbered; group ids are unchanged."""
    used, photos = np.unique(data.photos, return_inverse=True)
    sequences, names = _trim_sequences(data)
    return FrameSet(
        [data.encoded_photos[number] for number in used],
        [data.photo_names[number] for number in used],
        photos.ravel(),
        data.frames,
        data.groups,
        sequences,
        data.sources,
        names,
        data.overlaps,
        data.extent,
    )


def trim_patches(data: PatchSet) -> PatchSet:
    """Return the set without photos and sequences that have no patch, renumbered; group ids are unchanged."""
    labels, photo_names = data.labels, data.photo_names
    if "photo" in labels and photo_names:
        used, photos = np.unique(labels["photo"], return_inverse=True)
        labels, photo_names = {**labels, "photo": photos.ravel()}, [photo_names[number] for number in used]
    sequences, names = _trim_sequences(data)
    return PatchSet(
        data.shards, data.groups, sequences, labels, names, data.extent, data.overlaps, data.frames, photo_names
    )


def _trim_sequences(data: PatchSet | FrameSet) -> tuple[Ids, list[str]]:
    """Return the renumbered sequence of each item, and the names of the sequences with items."""
    used, sequences = np.unique(data.sequences, return_inverse=True)
    return sequences.ravel(), [data.sequence_names[number] for number in used] if data.sequence_names else []
