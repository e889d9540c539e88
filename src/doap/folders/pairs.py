"""Pairs of images to match: from a file, or all of them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path

from doap.errors import DoapError, check_path, inflect

Pair = tuple[str, str]
"""Names of two images of a collection."""

BLOCK_SIDE = 16

NAME = re.compile(r'"([^"]*)"(?=\s|$)|(\S+)')


def read_pairs(path: str | Path, names: Iterable[str]) -> list[Pair]:
    """Read a file of pairs: two image names per line, separated by white space, as hloc writes them.

    A name with spaces stands in double quotes. Empty lines and lines that start with # are ignored. A pair that is
    repeated, in either order, is kept once.

    Args:
        path: The file.
        names: Images of the collection.

    Raises:
        DoapError: If the file cannot be read or a line is not a pair of images of the collection.
    """
    check_path("the file of pairs", path)
    known = set(names)
    pairs: dict[Pair, None] = {}
    for number, line in _lines(Path(path)):
        words = [quoted or plain for quoted, plain in NAME.findall(line)]
        if len(words) != 2:
            found = f"{len(words)} {inflect(len(words), 'name')}"
            raise DoapError(f'{path}, line {number}: {found} instead of 2; put "quotes" around spaces')
        first, second = words
        for name in words:
            if name not in known:
                raise DoapError(f"{path}, line {number}: no features of {name}; describe it or remove the line")
        if first == second:
            raise DoapError(f"{path}, line {number}: {first} is paired with itself; remove the line")
        if (second, first) not in pairs:
            pairs[first, second] = None
    if not pairs:
        raise DoapError(f"{path}: no pair in it; write two image names per line")
    return list(pairs)


def to_pair(names: Sequence[str]) -> Pair:
    """Return the names of two images as a pair; JSON and NumPy have lists and arrays of them.

    Raises:
        DoapError: If there are not two names.
    """
    try:
        first, second = (None, None) if isinstance(names, str) else names
    except (TypeError, ValueError):  # no two items
        first, second = None, None
    if not (isinstance(first, str) and isinstance(second, str)):
        raise DoapError(f"a pair must be the names of two images, not {names!r}")
    return str(first), str(second)  # not NumPy's


def all_pairs(names: Iterable[str]) -> list[Pair]:
    """Return every pair of images once, the names of a pair in sorted order."""
    return list(combinations(sorted(names), 2))


def in_blocks(pairs: Iterable[Pair], side: int = BLOCK_SIDE) -> list[Pair]:
    """Order pairs so that consecutive ones share images: by blocks of `side` first and `side` second images.

    A worker that keeps the features of 2 `side` images in memory then reads each image once per block instead of once
    per pair.
    """
    pairs = list(pairs)
    rank = {name: index for index, name in enumerate(sorted({name for pair in pairs for name in pair}))}

    def key(pair: Pair) -> tuple[int, int, int, int]:
        first, second = rank[pair[0]], rank[pair[1]]
        return first // side, second // side, first, second

    return sorted(pairs, key=key)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DoapError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise DoapError(f"{path}: not a text file in UTF-8; write two image names per line") from error
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line
