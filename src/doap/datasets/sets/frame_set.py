"""Frame sets: photos and frames instead of patches, so that every sampled patch is a new jittered view.

On disk a frame set is a folder:

    set.json               manifest: counts, names, and the CRC-32 of each array below
    photos-00000.npy …     uint8: encoded grey photos (WebP, JPEG, PNG), concatenated, at most 32 MiB per file
    picture_starts.npy     int64 (P + 1,): start of each photo in the concatenation of these files
    frames.npy             float32 (N, 2, 3): frames in their photos
    photos.npy             int64 (N,): photo of each frame
    groups.npy             int64 (N,): frames of one group show the same 3D point
    sequences.npy          int64 (N,): sequence of each frame, for example its scene
    overlaps.npy           int64 (P, 2): pairs of groups that overlap in a photo, never negatives of each other
    sources.npy            int64 (N,): index in SOURCES: how the group was found
    checksums.npy          uint32: CRC-32 of every MiB of the photo files, in order
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from doap.choices import DEFAULT_EXTENT
from doap.datasets.sets.groups import GroupedSet, Ids
from doap.datasets.sets.storage import (
    BLOCKS_CHECKED_ON_OPEN,
    damaged_manifest,
    map_shard,
    read_array,
    read_manifest,
    save_shard,
    verify_set,
    verify_shards,
    write_set,
)
from doap.errors import DoapError, inflect
from doap.files import atomic_folder
from doap.images.reading import open_image, to_grey
from doap.types import Frames, Grey

KIND = "frame set"
SHARD_BYTES = 32 << 20

Source = Literal["views", "static", "tracks"]
"""How a group was found.

- "views": one frame of one photo; its patches are jittered views.
- "static": the same frame in photos of a static camera.
- "tracks": a 3D point tracked through overlapping photos.
"""

# Sets store the index of a source: the order must not change.
SOURCES: tuple[Source, ...] = get_args(Source)

Encoded = NDArray[np.uint8]
"""An encoded photo, (bytes,) uint8."""


class FrameSet(GroupedSet):
    """Frames, each with its photo, group and sequence. Patches are cut when they are sampled.

    Args:
        encoded_photos: The photos, each as the bytes of an image file, (bytes,) uint8.
        photo_names: Name of each photo.
        photos: (N,) integers, the photo of each frame.
        frames: (N, 2, 3) float32.
        groups: (N,) integers; frames with the same group show the same point.
        sequences: (N,) integers; all frames of a group have the same one.
        sources: (N,) integers, indices in SOURCES.
        sequence_names: Name of sequence i at index i; empty if the sequences have no names.
        overlaps: See `GroupedSet`.
        extent: Half the side of a patch in units of its frame's scale.
    """

    is_jittered = True

    def __init__(
        self,
        encoded_photos: Sequence[Encoded],
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
        self.encoded_photos = list(encoded_photos)
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
        bounds = (("photos", self.photos, len(self.encoded_photos)), ("sources", self.sources, len(SOURCES)))
        for name, ids, values in bounds:
            if ids.shape != (count,) or not (ids.min() >= 0 and ids.max() < values):
                raise DoapError(f"{name} must be {count} integers in 0..{values - 1}")
        if len(self.photo_names) != len(self.encoded_photos):
            raise DoapError(f"{len(self.photo_names)} names for {len(self.encoded_photos)} photos")

    def __repr__(self) -> str:
        photos = len(self.encoded_photos)
        frames = f"{len(self):,} {inflect(len(self), 'frame')}"
        return f"FrameSet({frames} in {photos:,} {inflect(photos, 'photo')}, {self.summary()})"

    def read_photo(self, index: int) -> Grey:
        """Decode the photo at an index: (H, W) uint8."""
        return decode_photo(self.encoded_photos[index], self.photo_names[index])

    def photo_shape(self, index: int) -> tuple[int, int]:
        """Return (height, width) of the photo at an index, without decoding it."""
        with _open_photo(self.encoded_photos[index], self.photo_names[index]) as image:
            return image.height, image.width

    def select(self, mask: NDArray[np.bool_]) -> "FrameSet":
        """Return the frames of a mask, (N,) bool, as a set; photos, groups and sequences keep their ids.

        `frames.select(np.isin(frames.sequences, ids))` and its complement share no photo; see also
        `doap.datasets.build.splitting`.
        """
        groups = self.groups[mask]
        return FrameSet(
            self.encoded_photos,
            self.photo_names,
            self.photos[mask],
            self.frames[mask],
            groups,
            self.sequences[mask],
            self.sources[mask],
            self.sequence_names,
            self.overlaps[np.isin(self.overlaps, groups).all(axis=1)],
            self.extent,
        )

    def save(self, path: Path | str) -> None:
        """Write the set as a folder, atomically. An existing path is refused."""
        with atomic_folder(Path(path)) as folder:
            self.write(folder)

    def write(self, folder: Path) -> None:
        """Write the set into an empty folder, not atomically; see `save`."""
        sizes = np.array([len(photo) for photo in self.encoded_photos], np.int64)
        shards, checksums = [], []
        for number, (first, last) in enumerate(_shard_ranges(sizes)):
            name = f"photos-{number:05d}.npy"
            content = np.concatenate(self.encoded_photos[first:last])
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
        entries = {
            "extent": self.extent,
            "sequence_names": self.sequence_names,
            "photo_names": self.photo_names,
            "shards": shards,
        }
        write_set(folder, KIND, arrays, entries)

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open a saved set, with memory-mapped photos and the checks of `PatchSet.open`.

        Raises:
            DoapError: If the set is damaged; names the file and the error.
        """
        folder = Path(path)
        manifest = _read_manifest(folder)
        ids = {
            name: read_array(folder, name, manifest, np.int64) for name in ("photos", "groups", "sequences", "sources")
        }
        shards = [map_shard(folder / shard["file"], (shard["bytes"],)) for shard in manifest["shards"]]
        photos = _slice_photos(folder, shards, read_array(folder, "picture_starts", manifest, np.int64))
        try:
            frames = cls(
                photos,
                manifest["photo_names"],
                ids["photos"],
                read_array(folder, "frames", manifest, np.float32, 3),
                ids["groups"],
                ids["sequences"],
                ids["sources"],
                manifest["sequence_names"],
                read_array(folder, "overlaps", manifest, np.int64, 2),
                manifest["extent"],
            )
        except DoapError as error:
            raise DoapError(f"{folder}: {error}") from error
        verify_shards(folder, manifest, BLOCKS_CHECKED_ON_OPEN)
        return frames

    @staticmethod
    def verify(path: Path | str) -> None:
        """Check every byte of a saved set against its checksums; a DoapError names the first damaged file."""
        folder = Path(path)
        verify_set(folder, _read_manifest(folder))


def decode_photo(encoded: Encoded, name: str) -> Grey:
    """Decode a photo of a set: (H, W) uint8; the name is for errors."""
    with _open_photo(encoded, name) as image:
        return to_grey(image)


def _open_photo(encoded: Encoded, name: str) -> AbstractContextManager[Image.Image]:
    return open_image(BytesIO(encoded.tobytes()), name, "build the set again")


def _shard_ranges(sizes: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the photos of each file as ranges (first, last + 1), such that no photo spans two files."""
    ranges, first, used = [], 0, 0
    for number, size in enumerate(sizes):
        if used and used + size > SHARD_BYTES:
            ranges.append((first, number))
            first, used = number, 0
        used += size
    return [*ranges, (first, len(sizes))]


def _slice_photos(folder: Path, shards: list[Encoded], starts: NDArray[np.int64]) -> list[Encoded]:
    ends = np.cumsum([len(shard) for shard in shards])
    is_complete = len(starts) > 1 and starts[0] == 0 and starts[-1] == ends[-1] and (np.diff(starts) > 0).all()
    shard_of = np.searchsorted(ends, starts[:-1], side="right")
    if not is_complete or (starts[1:] > ends[shard_of]).any():
        raise DoapError(f"{folder / 'picture_starts.npy'}: does not match the photo files; build the set again")
    shard_starts = ends - [len(shard) for shard in shards]
    return [
        shards[shard][start - shard_starts[shard] : end - shard_starts[shard]]
        for shard, start, end in zip(shard_of, starts[:-1], starts[1:], strict=True)
    ]


def _read_manifest(folder: Path) -> dict[str, Any]:
    needed = {"extent": float, "sequence_names": list, "photo_names": list, "shards": list}
    manifest = read_manifest(folder, KIND, needed)
    if not manifest["shards"] or not all(
        isinstance(s, dict)
        and isinstance(s.get("bytes"), int)
        and isinstance(s.get("file"), str)
        and Path(s["file"]).name == s["file"]
        for s in manifest["shards"]
    ):
        raise damaged_manifest(folder)
    return manifest


def encode(image: Grey, quality: int | None = None) -> Encoded:
    """Encode a grey image as WebP of a quality, or losslessly as PNG if no quality is given."""
    file = BytesIO()
    if quality is None:
        Image.fromarray(image).save(file, "PNG")
    else:
        Image.fromarray(image).save(file, "WEBP", quality=quality, method=4)
    return np.frombuffer(file.getvalue(), np.uint8)
