"""Sets on disk: a folder of arrays and a manifest, set.json, that knows what is there and every checksum."""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from doap.errors import DoapError

MANIFEST = "set.json"
BLOCK_BYTES = 1 << 20

# Opening checks this many blocks, evenly spread: all of a set of up to 128 MiB, a sample of a larger one.
BLOCKS_CHECKED_ON_OPEN = 128


def format_name(kind: str) -> str:
    """What the manifest of a kind of set calls its format."""
    return f"doap {kind} 1"


def kind_of(folder: Path) -> str | None:
    """The kind of set that a folder says it is, or None; whether it is whole, opening tells."""
    try:
        name = str(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["format"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    kind = name.removeprefix("doap ").rpartition(" ")[0]
    return kind if name == format_name(kind) else None


def write_set(folder: Path, kind: str, arrays: Mapping[str, NDArray[Any]], about: dict[str, Any]) -> None:
    """Write arrays as NAME.npy and the manifest: the format, what `about` says, the CRC-32 of each array file."""
    checksums = {}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
        checksums[name] = zlib.crc32((folder / f"{name}.npy").read_bytes())
    manifest = {"format": format_name(kind), **about, "arrays": checksums}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def read_manifest(folder: Path, kind: str, needed: Mapping[str, type]) -> dict[str, Any]:
    """Read set.json; a DoapError says what is wrong with it.

    Args:
        folder: of the set.
        kind: what it must be, "patch set" or "frame set".
        needed: entries that must be there, and of which type.
    """
    file = folder / MANIFEST
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DoapError(f"{folder}: not a {kind} ({file.name}: {error.strerror})") from error
    except ValueError as error:
        raise DoapError(f"{file}: not valid JSON; the set is damaged, build it again") from error
    if not isinstance(about, dict) or about.get("format") != format_name(kind):
        raise DoapError(f"{file}: format is not {format_name(kind)!r}")
    well_formed = (
        all(isinstance(about.get(name), type_) for name, type_ in needed.items())
        and isinstance(about.get("arrays"), dict)
        and all(Path(name).name == name for name in about["arrays"])
    )
    if not well_formed:
        raise damaged_manifest(folder)
    return about


def damaged_manifest(folder: Path) -> DoapError:
    """What to say of a manifest with a wrong entry."""
    return DoapError(
        f"{folder / MANIFEST}: an entry is missing or of the wrong type; the set is damaged, build it again"
    )


def read_array(folder: Path, name: str, about: dict[str, Any], dtype: DTypeLike, ndim: int = 1) -> NDArray[Any]:
    """Read NAME.npy whole and check it against the manifest; a DoapError names the file and the error."""
    file = folder / f"{name}.npy"
    if name not in about["arrays"]:
        raise damaged_manifest(folder)
    try:
        content = file.read_bytes()
        array: NDArray[Any] = np.load(BytesIO(content), allow_pickle=False)
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror or 'not an array file'})") from error
    except (ValueError, EOFError) as error:
        raise DoapError(f"{file}: not an array file; the set is damaged, build it again") from error
    if zlib.crc32(content) != about["arrays"][name]:
        raise DoapError(f"{file}: checksum differs from the one in {MANIFEST}; the set is damaged, build it again")
    if array.dtype != dtype or array.ndim != ndim:
        raise DoapError(f"{file}: holds {array.dtype} {array.shape}, not {np.dtype(dtype)} in {ndim} dimensions")
    return array


def save_shard(file: Path, shard: NDArray[np.uint8]) -> list[int]:
    """Write a large array, and give the CRC-32 of every MiB of the file."""
    np.save(file, shard)
    with file.open("rb") as content:
        return [zlib.crc32(block) for block in iter(lambda: content.read(BLOCK_BYTES), b"")]


def map_shard(file: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Memory-map a shard, checked for type and shape; a DoapError names the file and the error."""
    try:
        shard: NDArray[np.uint8] = np.load(file, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror or 'not an array file'})") from error
    except (ValueError, EOFError) as error:
        raise DoapError(f"{file}: shorter than its header says, or no array file; build the set again") from error
    if shard.dtype != np.uint8 or shard.shape != shape:
        raise DoapError(f"{file}: holds {shard.dtype} {shard.shape}, but {MANIFEST} says uint8 {shape}")
    return shard


def verify_blocks(files: Sequence[Path], checksums: NDArray[np.uint32], at_most: int | None) -> None:
    """Compare blocks of shards with their checksums, reading the files rather than maps: that costs no memory.

    Args:
        files: the shards, in order.
        checksums: of all their blocks, in order.
        at_most: how many blocks to check, evenly spread; None checks all.
    """
    blocks = list(_blocks(files))
    if len(blocks) != len(checksums):
        raise DoapError(f"{files[0].parent / 'checksums.npy'}: {len(checksums)} checksums for {len(blocks)} blocks")
    wanted = len(blocks) if at_most is None else min(at_most, len(blocks))
    for number in np.linspace(0, len(blocks) - 1, wanted).round().astype(int):
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
