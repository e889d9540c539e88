"""Sources and licences of photos, and the frames of those under chosen licences."""

import csv
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import numpy as np

from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.trimming import trim_frames
from doap.errors import DoapError, inflect

COLUMNS = ("archive", "file", "source", "licence")


class PhotoSource(NamedTuple):
    """Source of a photo, and its licence in the words of the source."""

    source: str
    licence: str


PhotoSources = dict[str, PhotoSource]
"""Source and licence of photos by name, archive/file."""


def read_photo_sources(table: Path) -> PhotoSources:
    """Read source and licence of each photo from a CSV file with the columns archive, file, source and licence.

    Raises:
        DoapError: If the file cannot be read, or a value is missing.
    """
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DoapError(f"{table}: cannot be read as a CSV file ({error})") from error
    if not rows or not set(COLUMNS) <= set(rows[0]) or not all(row[column] for row in rows for column in COLUMNS):
        raise DoapError(f"{table}: must have the columns {', '.join(COLUMNS)}, with a value of each in every row")
    return {f"{row['archive']}/{row['file']}": PhotoSource(row["source"], row["licence"]) for row in rows}


def find_sources(photo_sources: PhotoSources, photos: Sequence[str]) -> list[PhotoSource]:
    """Return the source and licence of each photo of a set.

    A set of one folder of archives names its photos folder/archive/file, a set of several archives archive/file.

    Raises:
        DoapError: If those of a photo are unknown.
    """
    sources = [photo_sources.get(photo) or photo_sources.get(photo.partition("/")[2]) for photo in photos]
    missing = [photo for photo, source in zip(photos, sources, strict=True) if source is None]
    if missing:
        others = inflect(len(missing), "photo of the set that is", "photos of the set that are")
        raise DoapError(f"{missing[0]}: the first of {len(missing)} {others} not in the CSV file")
    return [source for source in sources if source is not None]


def is_chosen(licence: str, patterns: Sequence[str]) -> bool:
    """Return whether a licence matches one of the patterns, whose wildcards are those of file names.

    Example:
        >>> is_chosen("CC BY-SA 4.0 (repo file)", ["CC*", "*BSD*"]), is_chosen("no licence stated", ["CC*", "*BSD*"])
        (True, False)
    """
    return any(fnmatchcase(licence, pattern) for pattern in patterns)


def select_licences(data: FrameSet, photo_sources: PhotoSources, patterns: Sequence[str]) -> FrameSet:
    """Return the groups of a set that lie in photos under chosen licences alone, with these photos.

    Args:
        data: The set.
        photo_sources: Licences of its photos, or of more.
        patterns: See `is_chosen`.

    Raises:
        DoapError: If the licence of a photo is unknown, or nothing remains.
    """
    chosen = np.array([is_chosen(item.licence, patterns) for item in find_sources(photo_sources, data.photo_names)])
    mask = ~np.isin(data.groups, data.groups[~chosen[data.photos]])
    if not mask.any():
        raise DoapError(f"no photo has a licence like {' or '.join(patterns)}")
    return trim_frames(data.select(mask))
