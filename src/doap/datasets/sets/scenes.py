"""What of a set shows one scene, and so must stay together where a set is split.

Photos of one scene share a folder, and a build links those that it can. What it could not link may show the scene all
the same: other sides of it, or the same view too dark to be recognised. So a folder is one scene unless it is plainly a
collection: more than a few photos, hardly any of them linked to another. In a collection each sequence is a scene, as
in sets that know nothing of photos.
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

FEW = 10  # photos of a folder that are never taken for a collection
LINKED = 0.1  # of a folder's photos, sharing a sequence with another one: no collection has so many


@dataclass(frozen=True)
class SetScene:
    """Sequences that must stay together.

    Attributes:
        name: the folder of its photos, or the name of its only sequence.
        source: how its groups were found, the last one in the order of SOURCES; empty where that is not known.
        sequences: their ids.
    """

    name: str
    source: str
    sequences: tuple[int, ...]


def scenes_of(data: PatchSet | FrameSet) -> list[SetScene]:
    """The scenes of a set; every sequence that has an item is in one of them."""
    sources = _last_sources(data)
    together: dict[str, list[int]] = defaultdict(list)
    for sequence, name in _scene_names(data).items():
        together[name].append(sequence)
    return [
        SetScene(name, max((sources[s] for s in sequences), key=("", *SOURCES).index), tuple(sequences))
        for name, sequences in together.items()
    ]


def seeded_order(names: Iterable[str], seed: int) -> list[str]:
    """Names in an order that depends on the seed and on themselves alone, not on the order they come in."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())


def sequence_name(data: PatchSet | FrameSet, sequence: int) -> str:
    """What a sequence is called; by its number where sequences have no names."""
    return data.sequence_names[sequence] if data.sequence_names else f"sequence {sequence}"


def _scene_names(data: PatchSet | FrameSet) -> dict[int, str]:
    """The scene of each sequence that has an item."""
    own = {int(sequence): sequence_name(data, int(sequence)) for sequence in np.unique(data.sequences)}
    photos = data.photos if isinstance(data, FrameSet) else data.labels.get("photo")
    if photos is None or not data.photo_names:
        return own
    inside: dict[str, list[int]] = defaultdict(list)
    for sequence, photo in _pairs(data.sequences, photos):
        inside[PurePosixPath(data.photo_names[photo]).parent.as_posix()].append(sequence)
    for folder, sequences in inside.items():
        if folder != "." and not _is_collection(np.array(sequences)):
            own |= dict.fromkeys(sequences, folder)
    return own


def _is_collection(sequences: Ids) -> bool:
    """Whether a folder, the sequence of each of its photos given, holds photos of different things."""
    photos = np.unique(sequences, return_counts=True)[1]
    return len(sequences) > FEW and photos[photos > 1].sum() < LINKED * len(sequences)


def _last_sources(data: PatchSet | FrameSet) -> dict[int, str]:
    """The last source, in the order of SOURCES, of each sequence that has an item; empty where none is known."""
    sources = data.sources if isinstance(data, FrameSet) else data.labels.get("source")
    if sources is None:
        return dict.fromkeys(np.unique(data.sequences).tolist(), "")
    # Of the pairs of one sequence the last one stays.
    return {sequence: SOURCES[source] for sequence, source in _pairs(data.sequences, sources)}


def _pairs(first: Ids, second: Ids) -> list[tuple[int, int]]:
    """The different pairs of ids that items have, ascending; as numbers, which sort ten times faster than rows."""
    base = int(second.max(initial=0)) + 1
    found = np.unique(first.astype(np.int64) * base + second)
    return list(zip((found // base).tolist(), (found % base).tolist(), strict=True))
