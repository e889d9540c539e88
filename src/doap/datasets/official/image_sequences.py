"""Image sequences with homographies, in the layouts of Oxford and HPatches.

Oxford      img1.png … img6.png (or .ppm, .pgm), H1to2p … H1to6p as text or H1to2p.xml … H1to6p.xml as OpenCV XML
HPatches    1.ppm … 6.ppm (or .png, .pgm), H_1_2 … H_1_6 as text

XML is read with the standard library: on damaged files `cv2.FileStorage` corrupts memory instead of raising an error.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from doap.errors import DoapError
from doap.files import printable

IMAGES = 6
SUFFIXES = (".png", ".ppm", ".pgm")
MAX_HOMOGRAPHY_BYTES = 1 << 16  # nine numbers take a few hundred bytes

# File names of image i and of its homography, by layout.
LAYOUTS = {"Oxford": ("img{}", "H1to{}p"), "HPatches": ("{}", "H_1_{}")}


@dataclass(frozen=True)
class ImageSequence:
    """Images of one scene, related by homographies.

    Attributes:
        name: Name of its folder.
        images: Paths of the n images, the reference first.
        homographies: (n, 3, 3) float64; homography i maps points (x, y, 1) of the reference to image i. The first
            is the identity.
    """

    name: str
    images: tuple[Path, ...]
    homographies: NDArray[np.float64]


def read_sequence(folder: Path) -> ImageSequence:
    """Read a sequence in any of the layouts. The homographies are read, the images are only located.

    Raises:
        DoapError: If a file is missing or damaged; names the file and the error.
    """
    layout = _recognise(folder)
    if layout is None:
        raise DoapError(f"{folder}: not an image sequence (img1.png … and H1to2p …, or 1.ppm … and H_1_2 …)")
    image_name, homography_name = LAYOUTS[layout]
    images = [_find_image(folder, image_name.format(number)) for number in range(1, IMAGES + 1)]
    homographies = [read_homography(_find_homography(folder, homography_name.format(n))) for n in range(2, IMAGES + 1)]
    return ImageSequence(printable(folder.resolve().name), tuple(images), np.stack([np.eye(3), *homographies]))


def find_sequences(folder: Path) -> list[ImageSequence]:
    """Return all sequences in a folder and its subfolders, sorted by path.

    Raises:
        DoapError: If there is none, or a sequence is damaged.
    """
    if not folder.is_dir():
        raise DoapError(f"{folder}: no such folder")
    paths = sorted(Path(name) for name, _, _ in os.walk(folder))
    sequences = [read_sequence(path) for path in paths if is_sequence(path)]
    if not sequences:
        raise DoapError(f"{folder}: no image sequence in it or below (img1.png … and H1to2p …, or 1.ppm … and H_1_2 …)")
    return sequences


def is_sequence(folder: Path) -> bool:
    """Return whether a folder is a sequence: it has a first image and a homography of it."""
    return _recognise(folder) is not None


def read_homography(file: Path) -> NDArray[np.float64]:
    """Read a homography (3, 3): nine numbers as text, or the first matrix of an OpenCV XML file.

    Raises:
        DoapError: If the file is not an invertible 3x3 matrix of finite numbers.
    """
    try:
        with file.open("rb") as source:
            content = source.read(MAX_HOMOGRAPHY_BYTES + 1)
    except OSError as error:
        raise DoapError(f"{file}: cannot be read ({error.strerror})") from error
    if len(content) > MAX_HOMOGRAPHY_BYTES:
        raise DoapError(f"{file}: larger than {MAX_HOMOGRAPHY_BYTES:,} bytes, too large for a homography")
    try:
        text = content.decode("utf-8-sig")
        numbers = _parse_opencv_xml(text, file) if text.lstrip().startswith("<") else text
        values = np.array([float(number) for number in numbers.split()])
    except (ValueError, ElementTree.ParseError) as error:
        raise DoapError(f"{file}: not a homography ({error})") from error
    if values.size != 9 or not np.isfinite(values).all() or np.linalg.det(values.reshape(3, 3)) == 0:
        raise DoapError(f"{file}: not a homography: needs nine finite numbers that form an invertible matrix")
    return values.reshape(3, 3)


def _recognise(folder: Path) -> str | None:
    """Return the layout of a folder, or None if it has no first image or no homography of it."""
    for layout, (image, homography) in LAYOUTS.items():
        has_image = any((folder / f"{image.format(1)}{suffix}").is_file() for suffix in SUFFIXES)
        if has_image and any(folder.glob(homography.format("[2-6]") + "*")):
            return layout
    return None


def _find_image(folder: Path, stem: str) -> Path:
    for suffix in SUFFIXES:
        if (folder / f"{stem}{suffix}").is_file():
            return folder / f"{stem}{suffix}"
    raise DoapError(f"{folder / stem}{SUFFIXES[0]}: no such image, also not as {' or '.join(SUFFIXES[1:])}")


def _find_homography(folder: Path, stem: str) -> Path:
    xml = folder / f"{stem}.xml"
    return xml if xml.is_file() else folder / stem


def _parse_opencv_xml(text: str, file: Path) -> str:
    """Return the numbers of the first matrix in an OpenCV XML file, which must be 3x3."""
    if "<!DOCTYPE" in text:  # the only place where entities can be declared
        raise DoapError(f"{file}: declares a document type, which OpenCV does not write; refused")
    matrix = next(iter(ElementTree.fromstring(text)), None)
    if matrix is None or (matrix.findtext("rows"), matrix.findtext("cols")) != ("3", "3"):
        return ""
    return matrix.findtext("data", "")
