"""Scenes of a set: sequences that show the same place and must not be separated when a set is split.

Photos of one scene share a folder, and a build links those it can register. Photos it could not link may still show
the same scene, from another side or too dark to be matched. A folder is therefore one scene, unless it is clearly a
collection: it has at least MIN_COLLECTION_PHOTOS photos, and less than MIN_LINKED_FRACTION of them share a sequence
with another one. In a collection, and in sets without photos, each sequence is a scene.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

from doap.datasets.sets.frame_set import SOURCES, FrameSet
from doap.datasets.sets.groups import Ids
from doap.datasets.sets.patch_set import PatchSet
from doap.datasets.sets.united_set import UnitedSet

MIN_COLLECTION_PHOTOS = 11  # a folder with fewer photos is always one scene
MIN_LINKED_FRACTION = 0.1  # a folder with at least this fraction of linked photos is always one scene


@dataclass(frozen=True)
class SetScene:
    """Sequences that must stay together.

    Attributes:
        name: Folder of its photos, or name of its only sequence.
        source: How its groups were found: the last of its sources in the order of SOURCES; empty if unknown.
        sequences: Ids of its sequences.
    """

    name: str
    source: str
    sequences: tuple[int, ...]


def find_scenes(data: PatchSet | FrameSet) -> list[SetScene]:
    """Return the scenes of a set. Every sequence with at least one item is in exactly one of them.

    The scenes of a union are those of its parts; a name in several parts is one scene.
    """
    if isinstance(data, UnitedSet):
        return _united_scenes(data)
    sources = _last_sources(data)
    sequences_by_scene: dict[str, list[int]] = defaultdict(list)
    for sequence, name in _scene_names(data).items():
        sequences_by_scene[name].append(sequence)
    return [
        SetScene(name, max((sources[s] for s in sequences), key=("", *SOURCES).index), tuple(sequences))
        for name, sequences in sequences_by_scene.items()
    ]


def seeded_order(names: Iterable[str], seed: int) -> list[str]:
    """Return names in a pseudo-random order that depends on the seed and the names, not on their input order."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())


def sequence_name(data: PatchSet | FrameSet, sequence: int) -> str:
    """Return the name of a sequence, or "sequence ID" if sequences have no names."""
    return data.sequence_names[sequence] if data.sequence_names else f"sequence {sequence}"


def _united_scenes(data: UnitedSet) -> list[SetScene]:
    """Return the scenes of all parts, named after part and scene, with the sequence ids of the union.

    A name that occurs in several parts is one scene: the parts may have been built from the same photos.
    """
    scenes: dict[str, SetScene] = {}
    first = 0
    for part, name, ids in zip(data.parts, data.part_names, data.part_sequences, strict=True):
        for scene in find_scenes(part):
            sequences = tuple(int(number) + first for number in np.searchsorted(ids, scene.sequences))
            key = scene.name if part.sequence_names else f"{name}/{scene.name}"  # "sequence 0" is no name
            if key in scenes:
                same = scenes[key]
                source = max(same.source, scene.source, key=("", *SOURCES).index)
                scenes[key] = SetScene(same.name, source, (*same.sequences, *sequences))
            else:
                scenes[key] = SetScene(f"{name}/{scene.name}", scene.source, sequences)
        first += len(ids)
    return list(scenes.values())


def _scene_names(data: PatchSet | FrameSet) -> dict[int, str]:
    """Return the scene of each sequence that has an item."""
    scenes = {int(sequence): sequence_name(data, int(sequence)) for sequence in np.unique(data.sequences)}
    photos = data.photos if isinstance(data, FrameSet) else data.labels.get("photo")
    if photos is None or not data.photo_names:
        return scenes
    sequences_in_folder: dict[str, list[int]] = defaultdict(list)
    for sequence, photo in _unique_pairs(data.sequences, photos):
        sequences_in_folder[PurePosixPath(data.photo_names[photo]).parent.as_posix()].append(sequence)
    for folder, sequences in sequences_in_folder.items():
        if folder != "." and not _is_collection(np.array(sequences)):
            scenes |= dict.fromkeys(sequences, folder)
    return scenes


def _is_collection(sequences: Ids) -> bool:
    """Return whether a folder holds photos of different scenes, from the sequence of each of its photos."""
    counts = np.unique(sequences, return_counts=True)[1]
    linked = counts[counts > 1].sum()
    return bool(len(sequences) >= MIN_COLLECTION_PHOTOS and linked < MIN_LINKED_FRACTION * len(sequences))


def _last_sources(data: PatchSet | FrameSet) -> dict[int, str]:
    """Return the last source, in the order of SOURCES, of each sequence that has an item; empty if unknown."""
    sources = data.sources if isinstance(data, FrameSet) else data.labels.get("source")
    if sources is None:
        return dict.fromkeys(np.unique(data.sequences).tolist(), "")
    # The pairs are ascending, so the last source of a sequence overwrites the others.
    return {sequence: SOURCES[source] for sequence, source in _unique_pairs(data.sequences, sources)}


def _unique_pairs(first: Ids, second: Ids) -> list[tuple[int, int]]:
    """Return the distinct pairs of ids, ascending."""
    # Pairs encoded as one integer sort ten times faster than rows.
    base = int(second.max(initial=0)) + 1
    pairs = np.unique(first.astype(np.int64) * base + second)
    return list(zip((pairs // base).tolist(), (pairs % base).tolist(), strict=True))
