"""Image sequences with homographies, to evaluate matching on: the layouts of Oxford and of HPatches.

Oxford      img1.png … img6.png (or .ppm, .pgm), H1to2p … H1to6p as text, or H1to2p.xml … as OpenCV writes
HPatches    1.ppm … 6.ppm (or .png, .pgm), H_1_2 … H_1_6 as text
"""

import os
from dataclasses import dataclass
from pathlib import Path
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from doap.errors import DoapError

IMAGES = 6
SUFFIXES = (".png", ".ppm", ".pgm")
LARGEST_HOMOGRAPHY = 1 << 16  # bytes; a file of nine numbers has some hundred

# What the files of image i are called in each layout.
LAYOUTS = {"Oxford": ("img{}", "H1to{}p"), "HPatches": ("{}", "H_1_{}")}


@dataclass(frozen=True)
class ImageSequence:
    """Images of one scene that homographies map onto each other.

    Attributes:
        name: of its folder.
        images: paths of the n images, the reference first.
        homographies: (n, 3, 3) float64; number i maps points (x, y, 1) of the reference into image i, so the
            first is the identity.
    """

    name: str
    images: tuple[Path, ...]
    homographies: NDArray[np.float64]


def read_sequence(folder: Path) -> ImageSequence:
    """Read a sequence in any of the layouts, recognised by its files; the images are found, not yet read.

    Raises:
        DoapError: one line that names the file and the error.
    """
    layout = _recognise(folder)
    if layout is None:
        raise DoapError(f"{folder}: no image sequence (img1.png … and H1to2p …, or 1.ppm … and H_1_2 …)")
    image_name, homography_name = LAYOUTS[layout]
    images = [_find_image(folder, image_name.format(number)) for number in range(1, IMAGES + 1)]
    maps = [read_homography(_find_homography(folder, homography_name.format(n))) for n in range(2, IMAGES + 1)]
    return ImageSequence(folder.resolve().name, tuple(images), np.stack([np.eye(3), *maps]))


def find_sequences(folder: Path) -> list[ImageSequence]:
    """All sequences in a folder and below it, sorted by path; a DoapError where there is none."""
    if not folder.is_dir():
        raise DoapError(f"{folder}: no such folder")
    inside = sorted(Path(place) for place, _, _ in os.walk(folder))
    found = [read_sequence(place) for place in inside if _recognise(place)]
    if not found:
        raise DoapError(f"{folder}: no image sequence here or below (img1.png … and H1to2p …, or 1.ppm … and H_1_2 …)")
    return found


def is_sequence(folder: Path) -> bool:
    """Whether a folder itself looks like a sequence: it has a first image and a homography of it."""
    return _recognise(folder) is not None


def read_homography(file: Path) -> NDArray[np.float64]:
    """Read a homography (3, 3), as nine numbers in a text or as the first matrix of an OpenCV XML file."""
    try:
        with file.open("rb") as source:
            content = source.read(LARGEST_HOMOGRAPHY + 1)
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror})") from error
    if len(content) > LARGEST_HOMOGRAPHY:
        raise DoapError(f"{file}: too large for a homography")
    try:
        text = _matrix_text(content, file) if content.lstrip().startswith(b"<") else content.decode("ascii")
        values = np.array([float(number) for number in text.split()])
    except (ValueError, expat.ExpatError) as error:
        raise DoapError(f"{file}: not a homography ({error})") from error
    if values.size != 9 or not np.isfinite(values).all() or np.linalg.det(values.reshape(3, 3)) == 0:
        raise DoapError(f"{file}: not a homography, which is nine finite numbers that can be inverted")
    return values.reshape(3, 3)


def _recognise(folder: Path) -> str | None:
    """The layout of a folder: it has a first image and any homography of it."""
    for layout, (image, homography) in LAYOUTS.items():
        pictured = any((folder / f"{image.format(1)}{suffix}").is_file() for suffix in SUFFIXES)
        if pictured and any(folder.glob(homography.format("[2-6]") + "*")):
            return layout
    return None


def _find_image(folder: Path, stem: str) -> Path:
    for suffix in SUFFIXES:
        if (folder / f"{stem}{suffix}").is_file():
            return folder / f"{stem}{suffix}"
    raise DoapError(f"{folder / stem}{SUFFIXES[0]}: no such image, nor with {' or '.join(SUFFIXES[1:])}")


def _find_homography(folder: Path, stem: str) -> Path:
    xml = folder / f"{stem}.xml"
    return xml if xml.is_file() else folder / stem


def _matrix_text(content: bytes, file: Path) -> str:
    """The text of <data> in the first matrix below the root; a document type, where entities hide, is refused."""
    path: list[str] = []
    matrices = 0
    parts: list[str] = []

    def refuse(*_about: object) -> None:
        raise DoapError(f"{file}: declares a document type, which no OpenCV matrix does; refused")

    def start(name: str, _attributes: dict[str, str]) -> None:
        nonlocal matrices
        path.append(name)
        matrices += len(path) == 2

    def end(_name: str) -> None:
        path.pop()

    def text(part: str) -> None:
        if matrices == 1 and len(path) == 3 and path[2] == "data":
            parts.append(part)

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    parser.Parse(content, True)
    return "".join(parts)
