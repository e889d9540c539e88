"""Files of hloc, from collections of features and of matches: HDF5 with one group per image or pair, and pair lists.

A file remembers what it was made from, so that one that is up to date is not written again, and one of other origin is
not replaced.
"""

import errno
import functools
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from doap.bridges.hloc.values import HlocPrecision, match_scores, to_hloc
from doap.errors import DoapError
from doap.files import write_text
from doap.folders import FeatureCollection, MatchCollection, Pair
from doap.folders.feature_store import FeatureFolder
from doap.folders.hdf5 import create_file, find_groups, open_file, read_stamps
from doap.folders.match_store import group_name
from doap.folders.matching import pair_stamps
from doap.locking import only_writer
from doap.parsing.json_files import parse_json
from doap.types import Progress, no_progress

if TYPE_CHECKING:
    import h5py

    from doap.features import Features, Matches

FORMAT = 1  # version of what is written
OWNER = "doap"  # attribute of a file: digest of its sources; of a group: that it was written here
PAIR_LIST = "doap_pairs"  # attribute of a match file: digest of the list of pairs written with it
DETECTION_NOISE = 1.0  # pixels at the size of detection, as hloc assumes for DoG
# Bits as floats: one of information per number. Level 4 gets to 1.5; higher levels take much longer for little.
COMPRESSION = {"compression": "gzip", "compression_opts": 4, "shuffle": True}
ROOM = 1 << 20  # bytes that HDF5 may write beside the arrays
MAX_INT16 = 1 << 15


def export_features(
    features: str | Path | FeatureCollection,
    path: str | Path,
    precision: HlocPrecision = "float32",
    *,
    force: bool = False,
    progress: Progress = no_progress,
) -> bool:
    """Write features of a folder as a feature file of hloc.

    One group per image: `keypoints` (N, 2) with the attribute `uncertainty`, `scores`, `scales`, `oris` in degrees,
    `descriptors` (D, N) and `image_size` (width, height). Bits become ± `bit_value`; they are compressed by HDF5.

    Args:
        features: Features that `doap describe` wrote, all of one model.
        path: File to write (.h5).
        precision: Number format of the descriptors; the rest is float32, because float16 would move keypoints.
        force: Replace a file that this function did not write.
        progress: Called with the numbers of finished and of all images.

    Returns:
        Whether the file was written; False if it was up to date.

    Raises:
        DoapError: If the features cannot be read or are of several models, or the file cannot be written.
    """
    collection = features if isinstance(features, FeatureCollection) else FeatureCollection(features)
    target = Path(path)
    _check_target(target, collection.path)
    digest = _digest([precision, collection.stamps])
    with only_writer(target):
        if _is_current(target, "keypoints", digest, force):
            return False
        max_size = _max_size(collection)
        origin = collection[collection.names[0]]
        with create_file(target, 0) as file:
            file.attrs[OWNER] = digest
            for done, name in enumerate(collection.names, 1):
                one = collection[name]
                _check_origin(one, origin, f"{collection.path}: {name}")
                arrays = _image_arrays(one, precision)
                _write(file, name, arrays, compressed="descriptors" if one.descriptors.dtype == np.uint8 else None)
                reduction = max(1.0, max(one.size) / max_size) if max_size else 1.0
                file[name]["keypoints"].attrs["uncertainty"] = DETECTION_NOISE * reduction
                progress(done, len(collection))
    return True


def export_matches(
    matches: str | Path | MatchCollection,
    features: str | Path | FeatureCollection,
    path: str | Path,
    *,
    pairs: str | Path | None = None,
    verified: bool = False,
    force: bool = False,
    progress: Progress = no_progress,
) -> bool:
    """Write matches of many pairs as a match file of hloc.

    One group per pair, see `pair_group`: `matches0` (N,) int16, for each keypoint of the first image that of the second
    or -1, and `matching_scores0` (N,) float16, see `match_scores`. With more than 32,768 keypoints in the second image,
    `matches0` is int32, which hloc reads as well; hloc's own matching writes int16 and overflows.

    Args:
        matches: Matches that `doap match` wrote.
        features: The features that were matched.
        path: File to write (.h5).
        pairs: Text file to write as well: the list of pairs that hloc's functions ask for.
        verified: Write only the matches that agree with the geometry; hloc can verify all of them itself.
        force: Replace files that this function did not write.
        progress: Called with the numbers of finished and of all pairs.

    Returns:
        Whether the file was written; False if it was up to date.

    Raises:
        DoapError: If matches or features cannot be read or do not belong together, hloc would confuse names of
            images, or a file cannot be written.
    """
    match_collection = matches if isinstance(matches, MatchCollection) else MatchCollection(matches)
    collection = features if isinstance(features, FeatureCollection) else FeatureCollection(features)
    target = Path(path)
    _check_target(target, match_collection.path)
    _check_target(target, collection.path)
    groups = _unique_groups(match_collection.pairs)
    if pairs is not None:
        _check_spaces(match_collection.pairs)
    lines = None if pairs is None else "".join(f"{first} {second}\n" for first, second in match_collection.pairs)
    digest = _digest([verified, _checked_stamps(match_collection, collection, verified)])
    bits = _bits(collection)

    @functools.cache
    def count(name: str) -> int:
        return len(collection[name])

    with only_writer(target):
        is_current = _is_current(target, "matches0", digest, force)
        if pairs is not None and lines is not None:
            _write_lines(Path(pairs), lines, target.parent, force)
        if is_current:
            return False
        with create_file(target, 0) as file:
            file.attrs[OWNER] = digest
            if lines is not None:
                file.attrs[PAIR_LIST] = _digest([lines])
            for done, (group, (first, second)) in enumerate(groups.items(), 1):
                pair, counts = match_collection[first, second], (count(first), count(second))
                _check_indices(pair, counts, f"{match_collection.path}: {first} and {second}")
                _write(file, group, _pair_arrays(pair, counts, bits, verified))
                progress(done, len(groups))
    return True


def pair_group(pair: Pair) -> str:
    """Return the name of a pair's group in a match file of hloc.

    Example:
        >>> pair_group(("day/a.jpg", "b.jpg"))
        'day-a.jpg/b.jpg'
    """
    return "/".join(name.replace("/", "-") for name in pair)


def check_names(pairs: Sequence[Pair]) -> None:
    """Raise a DoapError if hloc would confuse the names of images in a list of pairs."""
    _unique_groups(pairs)
    _check_spaces(pairs)


def _check_spaces(pairs: Iterable[Pair]) -> None:
    spaced = next((name for pair in pairs for name in pair if name.split() != [name]), None)
    if spaced is not None:
        raise DoapError(f"{spaced!r}: hloc splits names of images at spaces; rename the image and describe it again")


def _image_arrays(features: "Features", precision: HlocPrecision) -> dict[str, NDArray[Any]]:
    height, width = features.size
    unknown = np.zeros(len(features), np.float32)
    return {
        "descriptors": to_hloc(features.descriptors, precision),
        "image_size": np.array([width, height], np.int64),
        "keypoints": features.keypoints,
        "oris": features.angles,
        "scales": features.scales,
        "scores": unknown if features.responses is None else features.responses,
    }


def _pair_arrays(
    matches: "Matches", counts: tuple[int, int], bits: int | None, verified: bool
) -> dict[str, NDArray[Any]]:
    chosen = matches.inliers if verified else slice(None)
    first, second = matches.indices[chosen].T
    rows = np.full(counts[0], -1, np.int16 if counts[1] <= MAX_INT16 else np.int32)
    scores = np.zeros(counts[0], np.float16)
    rows[first] = second
    scores[first] = match_scores(matches.distances[chosen], bits)
    return {"matches0": rows, "matching_scores0": scores}


def _check_indices(matches: "Matches", counts: tuple[int, int], where: str) -> None:
    """Raise DoapError for indices of keypoints that two images with these numbers of keypoints do not have."""
    if (matches.indices >= counts).any():
        raise DoapError(f"{where}: damaged, matches of keypoints that they do not have; run doap match again")


def _write_lines(path: Path, lines: str, folder: Path, force: bool) -> None:
    """Write a list of pairs, unless it exists; replace another one only if a match file in the folder came with it."""
    if path.is_dir():
        raise DoapError(f"{path}: is a folder; choose another output")
    if path.exists() and not force:
        existing = path.read_bytes().decode(errors="replace")
        if existing == lines:
            return
        if _digest([existing]) not in _pair_lists(folder):
            raise DoapError(f"{path}: exists with other pairs; choose another output, or --force to replace it")
    write_text(path, lines)


def _pair_lists(folder: Path) -> set[str]:
    """Return the digests of the lists that were written with the match files in a folder."""
    digests = set()
    for path in folder.glob("*.h5"):
        with suppress(DoapError), open_file(path) as file:  # a file of others may be anything
            digests.add(str(file.attrs.get(PAIR_LIST)))
    return digests


def _write(file: "h5py.File", name: str, arrays: Mapping[str, NDArray[Any]], compressed: str | None = None) -> None:
    """Write a group; HDF5 can crash on a full disk, hence its size is compared with the room before."""
    if shutil.disk_usage(Path(file.filename).parent).free < sum(array.nbytes for array in arrays.values()) + ROOM:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    group = file.create_group(name)
    group.attrs[OWNER] = FORMAT
    for entry, array in arrays.items():
        is_compressed = entry == compressed and array.size
        group.create_dataset(entry, data=array, **({**COMPRESSION, "chunks": array.shape} if is_compressed else {}))


def _is_current(path: Path, entry: str, digest: str, force: bool) -> bool:
    """Return whether a file exists and is up to date.

    Raises:
        DoapError: If it is to be replaced, and it or some of its groups were not written here.
    """
    if path.is_dir():
        raise DoapError(f"{path}: is a folder; choose another output")
    if force or not path.exists():
        return False
    try:
        with open_file(path) as file:
            if file.attrs.get(OWNER) == digest:
                return True
            added = [name for name, group in find_groups(file, entry) if OWNER not in group.attrs]
            is_ours = OWNER in file.attrs
    except DoapError:
        is_ours = False
    if not is_ours:
        raise DoapError(f"{path}: was not written by doap hloc; choose another output, or --force to replace it")
    if added:
        raise DoapError(f"{path}: another tool added {added[0]} to it; choose another output, or --force to replace it")
    return False


def _check_target(target: Path, source: Path) -> None:
    if target.resolve() == source.resolve():
        raise DoapError(f"{target}: is the file to convert; choose another output")


def _check_origin(features: "Features", origin: "Features", where: str) -> None:
    shapes = [one.descriptors.shape[1:] for one in (features, origin)]
    if features.model != origin.model or shapes[0] != shapes[1]:
        raise DoapError(
            f"{where}: features of {features.model}, others are of {origin.model}; describe all with one model"
        )


def _checked_stamps(matches: MatchCollection, features: FeatureCollection, verified: bool) -> dict[str, str]:
    """Return the stamps of all pairs, after a check that these features were matched and, if wanted, verified."""
    settings, stamps = read_stamps(matches.path, "indices", "matches of many pairs")
    if verified and settings["geometry"] is None:
        raise DoapError(f"{matches.path}: matched without a geometry, hence not verified; export all matches")
    for pair, stamp in pair_stamps(matches.pairs, features, settings).items():
        if stamps[group_name(pair)] != stamp:
            raise DoapError(
                f"{matches.path}: {pair[0]} and {pair[1]} were matched with other features than those in "
                f"{features.path}; run doap match again"
            )
    return stamps


def _unique_groups(pairs: Iterable[Pair]) -> dict[str, Pair]:
    groups: dict[str, Pair] = {}
    for pair in pairs:
        other = groups.setdefault(pair_group(pair), pair)
        if other != pair:
            names = next((a, b) for a, b in zip(pair, other, strict=True) if a != b)
            raise DoapError(f"{names[0]} and {names[1]}: hloc writes / as - and cannot tell them apart; rename one")
    return groups


def _bits(collection: FeatureCollection) -> int | None:
    descriptors = collection[collection.names[0]].descriptors
    return 8 * descriptors.shape[1] if descriptors.dtype == np.uint8 else None


def _max_size(collection: FeatureCollection) -> int | None:
    """Return the size at which images were described; None if it was not limited or is not known."""
    if collection.is_file:
        with open_file(collection.path) as file:
            settings = parse_json(file.attrs.get("settings", "{}"))
    else:
        settings = FeatureFolder(collection.path).read_identity() or {}
    size = settings.get("max_size")
    return int(size) if size else None


def _digest(sources: list[Any]) -> str:
    return hashlib.sha256(json.dumps([FORMAT, *sources], sort_keys=True).encode()).hexdigest()[:32]
