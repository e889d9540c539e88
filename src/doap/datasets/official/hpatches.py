"""HPatches: 16 strips of patches per sequence: the reference, and five images at three levels of jitter.

The folder of the data set has one folder per sequence, `i_*` for illumination changes and `v_*` for viewpoint changes.
A sequence is

    ref.png                    patches of the reference image, 65x65, stacked vertically
    e1.png … e5.png            the same points in images 1 to 5, with little jitter of the frames (easy)
    h1.png … h5.png            with more jitter (hard)
    t1.png … t5.png            with much jitter (tough)

Row i of every strip of a sequence shows the same point. The task lists are read in `hpatches_tasks.py`.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from doap.datasets.official.reading import read_exact_grey
from doap.datasets.sets.writer import write_patch_set
from doap.errors import DoapError
from doap.files import atomic_folder, printable
from doap.types import Progress, no_progress

SIZE = 65
EXTENT = 5.0  # the official patches extend five times the scale of the detection
IMAGES = 5
NOISES = ("ref", "easy", "hard", "tough")  # values of the label "noise"
# Image and noise of each strip, in the order in which a sequence is converted.
STRIPS = {
    "ref": (0, 0),
    **{f"{NOISES[noise][0]}{image}": (image, noise) for noise in (1, 2, 3) for image in range(1, IMAGES + 1)},
}


def source_files(folder: Path) -> list[Path]:
    """Return the strips of an HPatches folder; empty if it is not one."""
    return [sequence / f"{strip}.png" for sequence in find_sequences(folder) for strip in STRIPS]


def find_sequences(folder: Path) -> list[Path]:
    """Return the folders of the sequences, sorted by name, or the folder itself if it is a sequence.

    The list is empty if there is no strip.
    """
    if (folder / "ref.png").is_file():
        return [folder]
    folders = sorted(p for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    with_strips = [p for p in folders if any((p / f"{strip}.png").is_file() for strip in STRIPS)]
    if not with_strips:
        return []
    # A folder with an official name counts even if its strips are missing, so that they are reported.
    return [p for p in folders if p in with_strips or p.name.startswith(("i_", "v_"))]


def convert_hpatches(folder: Path, path: Path, progress: Progress = no_progress) -> None:
    """Convert an HPatches folder to a patch set, with one strip in memory at a time.

    Each row of a sequence becomes a group, each folder a sequence with its name. Labels: "image", 0 for the reference
    and 1 to 5 for the others; "noise", 0 for the reference, 1 easy, 2 hard, 3 tough.

    Args:
        folder: Folder of the data set, or of one sequence.
        path: Patch set to write.
        progress: Callback, called as progress(strips done, total).

    Raises:
        DoapError: If a file is missing or damaged; nothing is written then.
    """
    sequences = find_sequences(folder)
    files = source_files(folder)
    if not sequences:
        raise DoapError(f"{folder}: no HPatches sequence here (a folder with ref.png, e1.png … t5.png)")
    for file in files:  # before the long work starts
        if not file.is_file():
            raise DoapError(f"{file}: no such file; a sequence needs the strips {', '.join(STRIPS)}")
    done = start = 0
    with write_patch_set(path, SIZE, [printable(s.resolve().name) for s in sequences], EXTENT) as writer:
        for number, sequence in enumerate(sequences):
            rows = 0
            for strip, (image, noise) in STRIPS.items():
                patches = read_strip(sequence / f"{strip}.png")
                if rows and len(patches) != rows:
                    raise DoapError(f"{sequence / strip}.png: {len(patches)} patches, but ref.png has {rows}")
                rows = len(patches)
                labels = {"image": np.full(rows, image), "noise": np.full(rows, noise)}
                writer.append(patches, np.arange(start, start + rows), np.full(rows, number), **labels)
                done += 1
                progress(done, len(files))
            start += rows


def read_strip(file: Path) -> NDArray[np.uint8]:
    """Read the patches of a strip, (N, 65, 65) uint8."""
    strip = read_exact_grey(file)
    height, width = strip.shape
    if width != SIZE or height % SIZE:
        raise DoapError(f"{file}: {width}x{height} pixels, but a strip is {SIZE} wide and a multiple of {SIZE} high")
    return strip.reshape(-1, SIZE, SIZE)


def write_hpatches_folder(folder: Path, strips: Mapping[str, NDArray[np.uint8]]) -> None:
    """Write the strips of one sequence in the official format, atomically.

    Args:
        folder: Folder of the sequence; refused if it exists.
        strips: (N, 65, 65) uint8 patches by strip: ref, e1 … e5, h1 … h5, t1 … t5.
    """
    if set(strips) != set(STRIPS):
        wrong = ", ".join(sorted(set(strips) ^ set(STRIPS)))
        raise DoapError(f"{folder}: a sequence needs the strips {', '.join(STRIPS)}; missing or unknown: {wrong}")
    rows = len(strips["ref"])
    for name, patches in strips.items():
        if patches.dtype != np.uint8 or patches.shape != (rows, SIZE, SIZE) or not rows:
            raise DoapError(
                f"{folder}: strip {name} is {patches.dtype} {patches.shape}, not uint8 {(rows or 'N', SIZE, SIZE)}"
            )
    with atomic_folder(folder) as temporary:
        for name, patches in strips.items():
            Image.fromarray(patches.reshape(-1, SIZE)).save(
                temporary / f"{name}.png", compress_level=1
            )  # 2.5 times as fast
