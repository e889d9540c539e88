"""HPatches folders from anybody's image sequences, made as the official ones were (Balntas et al., 2017).

Frames of the reference image are pooled from DoG, Harris and Hessian detections; of those that overlap by more
than half a random one is kept; those whose patch leaves any of the images are dropped. The rest are sent into
the other images by the homographies and jittered there, as a detector would have found them: easy, hard and tough.
Beyond the paper, a frame that has shrunk below a pixel in some image is dropped: its patch there is a blur, off by
several scales where the homography is off by a pixel.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from doap.datasets.official.hpatches import EXTENT, IMAGES, SIZE, write_hpatches_folder
from doap.datasets.official.image_sequences import ImageSequence
from doap.errors import DoapError
from doap.files import make_folder, write_text
from doap.geometry.ellipses import overlap, scales
from doap.images.detectors import DETECTORS
from doap.images.extraction import Pyramid, extract_patches
from doap.images.frames import transform_frames
from doap.images.jitter import LEVELS, Level, jitter_frames
from doap.images.reading import read_grey
from doap.images.selection import without_duplicates
from doap.types import Frames, Grey

POOLED = ("dog", "harris", "hessian")
SMALLEST_SCALE = 1.0  # pixels
SETTINGS = "made.json"


@dataclass(frozen=True)
class Settings:
    """How folders are made; kept beside them, so that a stopped run goes on alike."""

    points: int = 1500  # a sequence at most
    seed: int = 0  # fixes which frames are kept, and the jitter


@dataclass(frozen=True)
class Made:
    """What became of a sequence: how many patches a strip, and the mean overlap of frames with their jittered
    selves by level."""

    patches: int
    overlaps: dict[str, float]


def missing_sequences(sequences: Sequence[ImageSequence], output: Path, settings: Settings) -> list[ImageSequence]:
    """Which sequences a set of HPatches folders still lacks; all if there is none yet, which is begun.

    Raises:
        DoapError: if `output` is whole, was made otherwise or by another, or two sequences share a name.
    """
    names = [sequence.name for sequence in sequences]
    for sequence in sequences:
        if names.count(sequence.name) > 1:
            raise DoapError(f"{sequence.images[0].parent}: another sequence is called {sequence.name} too; rename one")
    file = output / SETTINGS
    if not output.exists() or not any(output.iterdir() if output.is_dir() else [output]):
        make_folder(output)
        write_text(file, json.dumps(asdict(settings)))
    elif not file.is_file():
        raise DoapError(f"{output}: exists already; remove it or choose another name")
    elif (made := file.read_text(encoding="utf-8")) != json.dumps(asdict(settings)):
        raise DoapError(f"{output}: was begun with other settings, {made}; use them or choose another name")
    missing = [sequence for sequence in sequences if not (output / sequence.name).exists()]
    if not missing and sequences:
        raise DoapError(f"{output}: exists already and has every sequence; remove it or choose another name")
    return missing


def make_hpatches(sequence: ImageSequence, output: Path, settings: Settings) -> Made:
    """Make the folder of one sequence in `output`, under its name, whole or not at all.

    Raises:
        DoapError: if an image cannot be read, or no frame lies in all of them.
    """
    images = [read_grey(path) for path in sequence.images]
    own = zlib.crc32(sequence.name.encode())  # the order of sequences changes nothing
    frames = choose_frames(images, sequence.homographies, settings.points, np.random.default_rng([settings.seed, own]))
    if not len(frames):
        raise DoapError(f"{sequence.images[0].parent}: no frame found that lies in all {len(images)} images")
    random = torch.Generator().manual_seed(int(np.random.default_rng([settings.seed, own, 1]).integers(1 << 62)))
    strips, overlaps = cut_strips(images, sequence.homographies, frames, LEVELS, random)
    write_hpatches_folder(output / sequence.name, strips)
    return Made(len(frames), overlaps)


def choose_frames(
    images: Sequence[Grey], homographies: NDArray[np.float64], points: int, random: np.random.Generator
) -> Frames:
    """Frames of the first image whose patches lie in all images, none twice, (N, 2, 3), N <= points.

    Args:
        images: n of them, (H, W) uint8.
        homographies: (n, 3, 3) from the first image to each.
        points: how many at most, and how many of each detector at most, its strongest.
        random: decides which of overlapping frames is kept, and which of too many.
    """
    pooled = []
    for name in POOLED:
        frames = DETECTORS[name](images[0], None)
        for image, homography in zip(images, homographies, strict=True):
            frames = frames[_can_be_cut(transform_frames(frames, homography), image.shape)]
        pooled.append(frames[:points])
    frames = random.permutation(np.concatenate(pooled))
    return frames[without_duplicates(frames)][:points]


def cut_strips(
    images: Sequence[Grey],
    homographies: NDArray[np.float64],
    frames: Frames,
    levels: dict[str, Level],
    random: torch.Generator,
) -> tuple[dict[str, NDArray[np.uint8]], dict[str, float]]:
    """Patches of frames in all images.

    Args:
        images: six, the reference first.
        homographies: (6, 3, 3) from the reference to each.
        frames: (N, 2, 3) of the reference.
        levels: how strongly frames are jittered; "easy", "hard" and "tough" give strips e, h and t.
        random: fixes the jitter.

    Returns:
        The strips, (N, 65, 65) uint8 by name, and the mean overlap of frames with their jittered selves by level.
    """
    strips = {"ref": extract_patches(images[0], frames, SIZE, EXTENT)}
    overlaps: dict[str, list[float]] = {level: [] for level in levels}
    for number in range(1, IMAGES + 1):
        pyramid = Pyramid(images[number])
        sent = transform_frames(frames, homographies[number])
        for level, strength in levels.items():
            jittered = jitter_frames(torch.from_numpy(sent), strength, random).numpy()
            strips[f"{level[0]}{number}"] = extract_patches(pyramid, jittered, SIZE, EXTENT)
            overlaps[level].append(float(overlap(sent, jittered).mean()))
    return strips, {level: float(np.mean(values)) for level, values in overlaps.items()}


def _can_be_cut(frames: Frames, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Whether the whole patch of a frame lies in an image, in front of the camera, and is not too small."""
    half = EXTENT * np.abs(frames[:, :, :2]).sum(2)
    low, high = frames[:, :, 2] - half, frames[:, :, 2] + half
    upright = np.linalg.det(frames[:, :, :2]) > 0  # a point behind the camera arrives mirrored
    within = (low >= 0).all(1) & (high <= np.array(shape[::-1]) - 1).all(1)
    return np.asarray(within & upright & (scales(frames) >= SMALLEST_SCALE))
