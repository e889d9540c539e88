"""Sets on disk: a folder of arrays, and a manifest, set.json, with their names and checksums."""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from doap.errors import DoapError
from doap.extents import check_extent
from doap.files import printable
from doap.parsing.array_files import map_array, parse_array
from doap.parsing.json_files import read_json

MANIFEST = "set.json"
BLOCK_BYTES = 1 << 20
NAMES = ("sequence_names", "photo_names")
BUILD_OPTIONS = {"patch set": "without --frames", "frame set": "with --frames"}  # of doap data build, by kind

# Opening checks this many evenly spaced blocks: all of a set of up to 128 MiB, a sample of a larger one.
BLOCKS_CHECKED_ON_OPEN = 128


def format_name(kind: str) -> str:
    """Return the format entry in the manifest of a kind of set."""
    return f"doap {kind} 1"


def kind_of(folder: Path) -> str | None:
    """Return the kind of set that a folder's manifest names, or None. The set itself is not checked."""
    try:
        name = str(read_json(folder / MANIFEST)["format"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    kind = name.removeprefix("doap ").rpartition(" ")[0]
    return kind if name == format_name(kind) else None


def write_set(folder: Path, kind: str, arrays: Mapping[str, NDArray[Any]], entries: dict[str, Any]) -> None:
    """Write arrays as NAME.npy, and the manifest: format, `entries`, CRC-32 of each array file."""
    _check_names(entries)
    checksums = {}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
        checksums[name] = zlib.crc32((folder / f"{name}.npy").read_bytes())
    manifest = {"format": format_name(kind), **entries, "arrays": checksums}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def read_manifest(folder: Path, kind: str, required: Mapping[str, type]) -> dict[str, Any]:
    """Read set.json.

    Args:
        folder: Folder of the set.
        kind: Expected kind, "patch set" or "frame set".
        required: Names and types of the required entries.

    Raises:
        DoapError: If the manifest is missing, is not valid, or has another format, or if a name leads outside a folder.
    """
    file = folder / MANIFEST
    try:
        manifest = read_json(file)
    except OSError as error:
        raise DoapError(f"{folder}: not a {kind} ({file.name}: {error.strerror})") from error
    except ValueError as error:
        raise DoapError(f"{file}: not valid JSON; the set is damaged, build it again") from error
    for other in BUILD_OPTIONS:
        if other != kind and isinstance(manifest, dict) and manifest.get("format") == format_name(other):
            raise DoapError(f"{folder}: is a {other}, not a {kind}; build it {BUILD_OPTIONS[kind]}")
    if not isinstance(manifest, dict) or manifest.get("format") != format_name(kind):
        raise DoapError(f"{file}: format is not {format_name(kind)!r}")
    well_formed = (
        all(isinstance(manifest.get(name), type_) for name, type_ in required.items())
        and isinstance(manifest.get("arrays"), dict)
        and all(Path(name).name == name for name in manifest["arrays"])
        and all(isinstance(manifest.get(name, []), list) for name in NAMES)
    )
    if not well_formed:
        raise damaged_manifest(folder)
    try:
        check_extent(manifest["extent"])
        _check_names(manifest)
    except DoapError as error:
        raise DoapError(f"{file}: {error}; the set is damaged, build it again") from error
    return manifest


def _check_names(entries: Mapping[str, Any]) -> None:
    """Check the names of sequences and photos, since outputs are named by them.

    They are relative paths, such as those of photos below a folder, but lead to no other folder.
    """
    for entry in NAMES:
        for name in entries.get(entry, []):
            is_valid = isinstance(name, str) and printable(name) == name and name and name[0] != "/"
            if not is_valid or ".." in name.split("/"):
                raise DoapError(f"{entry}: {name!r} is not a name or a relative path without ..")


def damaged_manifest(folder: Path) -> DoapError:
    """Return the error for a manifest with a wrong entry."""
    return DoapError(
        f"{folder / MANIFEST}: an entry is missing or of the wrong type; the set is damaged, build it again"
    )


def read_array(folder: Path, name: str, manifest: dict[str, Any], dtype: DTypeLike, ndim: int = 1) -> NDArray[Any]:
    """Read NAME.npy and check it against the manifest; a DoapError names the file and the error."""
    file = folder / f"{name}.npy"
    if name not in manifest["arrays"]:
        raise damaged_manifest(folder)
    content = _read_bytes(file)
    try:
        array = parse_array(content)
    except ValueError as error:
        raise DoapError(f"{file}: {error}; the set is damaged, build it again") from error
    _check_sum(file, content, manifest["arrays"][name])
    if array.dtype != dtype or array.ndim != ndim:
        raise DoapError(f"{file}: holds {array.dtype} {array.shape}, not {np.dtype(dtype)} in {ndim} dimensions")
    return array


def verify_set(folder: Path, manifest: dict[str, Any]) -> None:
    """Check every byte of a set against its checksums; a DoapError names the first damaged file."""
    for name, checksum in manifest["arrays"].items():
        _check_sum(folder / f"{name}.npy", _read_bytes(folder / f"{name}.npy"), checksum)
    verify_shards(folder, manifest, None)


def verify_shards(folder: Path, manifest: dict[str, Any], max_blocks: int | None) -> None:
    """Compare the shards of a set with their checksums; see `verify_blocks`."""
    files = [folder / shard["file"] for shard in manifest["shards"]]
    verify_blocks(files, read_array(folder, "checksums", manifest, np.uint32), max_blocks)


def _read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror})") from error


def _check_sum(file: Path, content: bytes, checksum: int) -> None:
    if zlib.crc32(content) != checksum:
        raise DoapError(f"{file}: checksum differs from the one in {MANIFEST}; the set is damaged, build it again")


def save_shard(file: Path, shard: NDArray[np.uint8]) -> list[int]:
    """Write a large array and return the CRC-32 of every MiB of the file."""
    np.save(file, shard)
    with file.open("rb") as content:
        return [zlib.crc32(block) for block in iter(lambda: content.read(BLOCK_BYTES), b"")]


def map_shard(file: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Memory-map a shard and check its type and shape; a DoapError names the file and the error."""
    try:
        shard: NDArray[np.uint8] = map_array(file)
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise DoapError(f"{file}: {error}; the set is damaged, build it again") from error
    if shard.dtype != np.uint8 or shard.shape != shape:
        raise DoapError(f"{file}: holds {shard.dtype} {shard.shape}, but {MANIFEST} says uint8 {shape}")
    return shard


def verify_blocks(files: Sequence[Path], checksums: NDArray[np.uint32], max_blocks: int | None) -> None:
    """Compare blocks of shards with their checksums.

    The files are read rather than memory-mapped, so that memory use stays at one block.

    Args:
        files: The shards, in order.
        checksums: CRC-32 of all their blocks, in order.
        max_blocks: Number of evenly spaced blocks to check; None checks all.
    """
    try:
        _verify(files, checksums, max_blocks)
    except OSError as error:
        raise DoapError(f"{error.filename}: cannot be read ({error.strerror})") from error


def _verify(files: Sequence[Path], checksums: NDArray[np.uint32], max_blocks: int | None) -> None:
    blocks = list(_blocks(files))
    if len(blocks) != len(checksums):
        raise DoapError(f"{files[0].parent / 'checksums.npy'}: {len(checksums)} checksums for {len(blocks)} blocks")
    count = len(blocks) if max_blocks is None else min(max_blocks, len(blocks))
    for number in np.linspace(0, len(blocks) - 1, count).round().astype(int):
        path, start = blocks[number]
        with path.open("rb") as file:
            file.seek(start)
            content = file.read(BLOCK_BYTES)
        if zlib.crc32(content) != checksums[number]:
            raise DoapError(f"{path}: checksum differs near byte {start:,}; the set is damaged, build it again")


def _blocks(files: Sequence[Path]) -> Iterator[tuple[Path, int]]:
    for path in files:
        for start in range(0, path.stat().st_size, BLOCK_BYTES):
            yield path, start
