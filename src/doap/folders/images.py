"""Images of a folder, each with a name that is unique in it."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from doap.errors import DoapError
from doap.files import printable
from doap.images.reading import PHOTO_SUFFIXES


@dataclass(frozen=True)
class NamedImage:
    """An image file and its name in a collection.

    Attributes:
        name: Path relative to the folder that was given, with forward slashes.
        path: Path of the file.
    """

    name: str
    path: Path


def unique_names(names: Iterable[str]) -> set[str]:
    """Return names of images as a set; a text, whose letters would be taken for names, is a `DoapError`."""
    if isinstance(names, str):
        raise DoapError(f"names: {names!r} is one text; give a list of names, [{names!r}]")
    return set(names)


def find_images(paths: Iterable[Path]) -> list[NamedImage]:
    """List the images among files, and in folders and below, sorted by name.

    The name of an image is its path relative to the folder that was given. With several arguments it is the path
    relative to the innermost folder that holds all of them; images that are given one by one are named by their file
    names alone, unless two are equal. Hidden files are left out. Links to folders are followed, each folder is listed
    once.

    Raises:
        DoapError: If a path does not exist, there is no image, or two names are equal.
    """
    given = [Path(os.path.normpath(Path(path).absolute())) for path in paths]  # links are kept
    for path in given:
        if not path.exists():
            raise DoapError(f"{path}: no such file or folder")
    files: dict[Path, None] = {}
    visited: set[tuple[int, int]] = set()
    for path in given:
        files |= dict.fromkeys(_walk(path, visited) if path.is_dir() else [path])
    if not files:
        raise DoapError(f"no image in {', '.join(map(str, given))}; name files or folders with images")
    if set(files) == set(given) and len({path.name for path in files}) == len(files):
        relative = {path: Path(path.name) for path in files}
    else:
        root = os.path.commonpath([path if path.is_dir() else path.parent for path in given])
        relative = {path: path.relative_to(root) for path in files}
    images = sorted((NamedImage(image_name(name), path) for path, name in relative.items()), key=lambda i: i.name)
    for first, second in pairwise(images):
        if first.name == second.name:
            raise DoapError(f"{first.name}: two images have this name once undecodable bytes are escaped; rename one")
    return images


def image_name(relative: Path) -> str:
    r"""Return the name of an image: its relative path with forward slashes.

    Bytes that are not UTF-8 and control characters are escaped (`\xff`), so that every name can be printed and stored.
    """
    return printable(relative.as_posix())


def _walk(folder: Path, visited: set[tuple[int, int]]) -> Iterator[Path]:
    """Yield the images in a folder and below; a folder that several links lead to is listed once."""
    status = folder.stat()
    if (status.st_dev, status.st_ino) in visited:
        return
    visited.add((status.st_dev, status.st_ino))
    try:
        with os.scandir(folder) as entries:
            children = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda e: e.name)
    except OSError as error:
        raise DoapError(f"{folder}: cannot be listed ({error.strerror}); change its permissions") from error
    for entry in children:
        path = folder / entry.name
        if path.is_dir():
            yield from _walk(path, visited)
        elif path.suffix.lower() in PHOTO_SUFFIXES and path.is_file():
            yield path
