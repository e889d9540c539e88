"""The patch set's sibling: photos and frames instead of pixels, so that every drawn patch is a fresh view.

On disk a frame set is a folder:

    set.json               what is here: counts, names, and the CRC-32 of each of the arrays below
    photos-00000.npy …     uint8: encoded grey pictures (WebP, JPEG, PNG) one after another, at most 32 MiB a file
    picture_starts.npy     int64 (P + 1,): where each picture begins, counted over the files put together
    frames.npy             float32 (N, 2, 3): where a group shows itself
    photos.npy             int64 (N,): in which photo
    groups.npy             int64 (N,): frames of one group show the same 3D point
    sequences.npy          int64 (N,): groups of one scene
    overlaps.npy           int64 (P, 2): groups that overlap in a photo, never each other's negatives
    sources.npy            int64 (N,): how the group was found, see SOURCES
    checksums.npy          uint32: the CRC-32 of every MiB of the photo files, in order
"""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from doap.datasets.sets.groups import Grouping, Ids
from doap.datasets.sets.storage import (
    BLOCKS_CHECKED_ON_OPEN,
    damaged_manifest,
    map_shard,
    read_array,
    read_manifest,
    save_shard,
    verify_blocks,
    write_set,
)
from doap.datasets.sets.writer import DEFAULT_EXTENT
from doap.errors import DoapError
from doap.files import atomic_folder
from doap.images.reading import to_grey
from doap.types import Frames, Grey

KIND = "frame set"
SHARD_BYTES = 32 << 20

# How a group was found: one frame of one photo, to be seen under jittered views; the same frame in pictures of a
# static view; or a point tracked through overlapping photos.
Source = Literal["views", "static", "tracks"]
SOURCES: tuple[Source, ...] = get_args(Source)

Encoded = NDArray[np.uint8]


class FrameSet(Grouping):
    """Frames with their photo, group and sequence; patches are cut when they are drawn.

    Args:
        pictures: the photos, encoded, each a (bytes,) uint8 array.
        photo_names: name of each photo.
        photos: (N,) integers, the photo of each frame.
        frames: (N, 2, 3) float32.
        groups: (N,) integers; frames with the same group show the same point.
        sequences: (N,) integers; all frames of a group share one.
        sources: (N,) integers, places in SOURCES.
        sequence_names: what the sequence ids mean.
        overlaps: see `Grouping`.
        extent: half the side of a patch in units of its frame's scale.
    """

    fresh = True

    def __init__(
        self,
        pictures: Sequence[Encoded],
        photo_names: Sequence[str],
        photos: Ids,
        frames: Frames,
        groups: Ids,
        sequences: Ids,
        sources: Ids,
        sequence_names: Sequence[str] = (),
        overlaps: Ids | None = None,
        extent: float = DEFAULT_EXTENT,
    ) -> None:
        self.pictures = list(pictures)
        self.photo_names = list(photo_names)
        self.photos = photos
        self.frames = frames
        self.sources = sources
        self.extent = float(extent)
        super().__init__(groups, sequences, sequence_names, overlaps)
        self._check_frames()

    def _check_frames(self) -> None:
        count = len(self)
        if self.frames.shape != (count, 2, 3) or not np.isfinite(self.frames).all():
            raise DoapError(f"frames must be {count} finite 2x3 matrices, not {self.frames.shape}")
        for name, ids, values in (("photos", self.photos, len(self.pictures)), ("sources", self.sources, len(SOURCES))):
            if ids.shape != (count,) or not (ids.min() >= 0 and ids.max() < values):
                raise DoapError(f"{name} must be {count} integers in 0..{values - 1}")
        if len(self.photo_names) != len(self.pictures):
            raise DoapError(f"{len(self.photo_names)} names for {len(self.pictures)} photos")

    def __repr__(self) -> str:
        photos = len(self.pictures)
        return f"FrameSet({len(self):,} frames in {photos:,} photo{'s' * (photos != 1)}, {self.counted()})"

    def picture(self, number: int) -> Grey:
        """Photo `number`, decoded: (H, W) uint8."""
        try:
            with Image.open(BytesIO(self.pictures[number].tobytes())) as picture:
                return to_grey(picture)
        except (OSError, ValueError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise DoapError(f"{self.photo_names[number]}: cannot be decoded from the set ({error})") from error

    def part(self, wanted: NDArray[np.bool_]) -> "FrameSet":
        """Some frames, (N,) bool, of whole groups or not; photos, groups and sequences keep their numbers.

        `frames.part(np.isin(frames.sequences, some))` and its complement share no photo; see also `split.split_scenes`.
        """
        groups = self.groups[wanted]
        return FrameSet(
            self.pictures,
            self.photo_names,
            self.photos[wanted],
            self.frames[wanted],
            groups,
            self.sequences[wanted],
            self.sources[wanted],
            self.sequence_names,
            self.overlaps[np.isin(self.overlaps, groups).all(axis=1)],
            self.extent,
        )

    def save(self, path: Path | str) -> None:
        """Write the set as a folder, atomically; an existing path is refused."""
        with atomic_folder(Path(path)) as folder:
            self.write(folder)

    def write(self, folder: Path) -> None:
        """Write the set into an empty folder; `save` does so atomically."""
        sizes = np.array([len(picture) for picture in self.pictures], np.int64)
        shards, checksums = [], []
        for number, (first, last) in enumerate(_shard_cuts(sizes)):
            name = f"photos-{number:05d}.npy"
            content = np.concatenate(self.pictures[first:last])
            checksums += save_shard(folder / name, content)
            shards.append({"file": name, "bytes": len(content)})
        arrays = {
            "picture_starts": np.concatenate(([0], np.cumsum(sizes))),
            "frames": self.frames,
            "photos": self.photos,
            "groups": self.groups,
            "sequences": self.sequences,
            "sources": self.sources,
            "overlaps": self.overlaps,
            "checksums": np.array(checksums, np.uint32),
        }
        about = {
            "extent": self.extent,
            "sequence_names": self.sequence_names,
            "photo_names": self.photo_names,
            "shards": shards,
        }
        write_set(folder, KIND, arrays, about)

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open a saved set, its photos memory-mapped; checks as `PatchSet.open` does.

        Raises:
            DoapError: one line that names the file and the error.
        """
        folder = Path(path)
        about = _read_manifest(folder)
        ids = {name: read_array(folder, name, about, np.int64) for name in ("photos", "groups", "sequences", "sources")}
        shards = [map_shard(folder / shard["file"], (shard["bytes"],)) for shard in about["shards"]]
        pictures = _slice_pictures(folder, shards, read_array(folder, "picture_starts", about, np.int64))
        try:
            found = cls(
                pictures,
                about["photo_names"],
                ids["photos"],
                read_array(folder, "frames", about, np.float32, 3),
                ids["groups"],
                ids["sequences"],
                ids["sources"],
                about["sequence_names"],
                read_array(folder, "overlaps", about, np.int64, 2),
                about["extent"],
            )
        except DoapError as error:
            raise DoapError(f"{folder}: {error}") from error
        _verify(folder, about, BLOCKS_CHECKED_ON_OPEN)
        return found

    @staticmethod
    def verify(path: Path | str) -> None:
        """Check every byte of a saved set against its checksums; a DoapError names the first bad file."""
        folder = Path(path)
        _verify(folder, _read_manifest(folder), None)


def _shard_cuts(sizes: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Runs of pictures, first and one past the last, that fill a file without crossing its end."""
    cuts, first, used = [], 0, 0
    for number, size in enumerate(sizes):
        if used and used + size > SHARD_BYTES:
            cuts.append((first, number))
            first, used = number, 0
        used += size
    return [*cuts, (first, len(sizes))]


def _slice_pictures(folder: Path, shards: list[Encoded], starts: NDArray[np.int64]) -> list[Encoded]:
    ends = np.cumsum([len(shard) for shard in shards])
    whole = len(starts) > 1 and starts[0] == 0 and starts[-1] == ends[-1] and (np.diff(starts) > 0).all()
    home = np.searchsorted(ends, starts[:-1], side="right")
    if not whole or (starts[1:] > ends[home]).any():
        raise DoapError(f"{folder / 'picture_starts.npy'}: does not fit the photo files; build the set again")
    begin = ends - [len(shard) for shard in shards]
    return [
        shards[shard][start - begin[shard] : end - begin[shard]]
        for shard, start, end in zip(home, starts[:-1], starts[1:], strict=True)
    ]


def _verify(folder: Path, about: dict[str, Any], at_most: int | None) -> None:
    files = [folder / shard["file"] for shard in about["shards"]]
    verify_blocks(files, read_array(folder, "checksums", about, np.uint32), at_most)


def _read_manifest(folder: Path) -> dict[str, Any]:
    needed = {"extent": float, "sequence_names": list, "photo_names": list, "shards": list}
    about = read_manifest(folder, KIND, needed)
    if not about["shards"] or not all(
        isinstance(s, dict)
        and isinstance(s.get("bytes"), int)
        and isinstance(s.get("file"), str)
        and Path(s["file"]).name == s["file"]
        for s in about["shards"]
    ):
        raise damaged_manifest(folder)
    return about


def encode(image: Grey, quality: int | None = None) -> Encoded:
    """A grey picture as WebP at a quality, or as PNG, which loses nothing."""
    file = BytesIO()
    if quality is None:
        Image.fromarray(image).save(file, "PNG")
    else:
        Image.fromarray(image).save(file, "WEBP", quality=quality, method=4)
    return np.frombuffer(file.getvalue(), np.uint8)
