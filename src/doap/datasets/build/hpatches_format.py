"""Folders in the format of HPatches from image sequences, made as the official ones (Balntas et al., 2017).

Frames of the reference image are pooled from DoG, Harris and Hessian detections. Of frames that overlap by more than
half, a random one is kept. Frames whose patch leaves any of the images are dropped. The others are mapped to the other
images by the homographies and jittered there, to simulate detector noise: easy, hard and tough. In addition to the
paper, frames with a scale below one pixel in some image are dropped: their patches are blurred, and an error of the
homography of one pixel would displace them by several scales.

The paper states how much noisy frames overlap the original ones, 0.85, 0.72 and 0.60. Noise of all parameters that
gives these overlaps has half the rotation, scale and stretch of official patches (`benchmarks/hpatches_noise.py`): the
overlap does not change with the rotation of a circle. `NOISE_LEVELS` has both.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from doap.choices import HPatchesNoise
from doap.datasets.build.settings import HPatchesSettings
from doap.datasets.official.hpatches import EXTENT, IMAGES, SIZE, write_hpatches_folder
from doap.datasets.official.image_sequences import ImageSequence
from doap.errors import DoapError
from doap.files import make_folder, printable, write_text
from doap.geometry.ellipses import overlap, scales
from doap.images.detectors import DETECTORS
from doap.images.extraction import Pyramid, are_patches_inside, extract_patches
from doap.images.frames import transform_frames
from doap.images.jitter.views import LEVELS, JitterLevel, jitter_frames
from doap.images.reading import read_grey
from doap.images.selection import suppress_duplicates
from doap.types import Frames, Grey

POOLED_DETECTORS = ("dog", "harris", "hessian")
MIN_SCALE = 1.0  # pixels
SETTINGS_FILE = "made.json"

# "measured": so that registered patches of made folders have the quartiles of those of the official i_contruction.
NOISE_LEVELS: dict[HPatchesNoise, dict[str, JitterLevel]] = {
    "overlap": LEVELS,
    "measured": {
        "easy": replace(LEVELS["easy"], rotation=10, shift=0.09, scale=0.17, stretch=0.19),
        "hard": replace(LEVELS["hard"], rotation=20, shift=0.17, scale=0.31, stretch=0.34),
        "tough": replace(LEVELS["tough"], rotation=30, shift=0.29, scale=0.42, stretch=0.53),
    },
}


@dataclass(frozen=True)
class FolderSummary:
    """Summary of the folder of a sequence.

    Attributes:
        patches: Number of patches per strip.
        overlaps: Mean overlap of frames with their jittered versions, by level.
    """

    patches: int
    overlaps: dict[str, float]


def missing_sequences(
    sequences: Sequence[ImageSequence], output: Path, settings: HPatchesSettings
) -> list[ImageSequence]:
    """Return the sequences that have no folder in `output` yet; create `output` if it does not exist.

    Raises:
        DoapError: If `output` is complete, has other settings or other content, or two sequences share a name.
    """
    names = [sequence.name for sequence in sequences]
    for sequence in sequences:
        if names.count(sequence.name) > 1:
            raise DoapError(f"{sequence.images[0].parent}: another sequence is named {sequence.name} too; rename one")
    file, content = output / SETTINGS_FILE, _settings_text(settings)
    if not output.exists() or not any(output.iterdir() if output.is_dir() else [output]):
        make_folder(output)
        write_text(file, content)
    elif not file.is_file():
        raise DoapError(f"{output}: exists already; remove it or choose another name")
    elif (stored := printable(file.read_text(encoding="utf-8", errors="replace"))) != content:
        raise DoapError(
            f"{output}: was started with other settings, {stored}, not {content}; use them or choose another name"
        )
    missing = [sequence for sequence in sequences if not (output / sequence.name).exists()]
    if not missing and sequences:
        raise DoapError(f"{output}: exists already and has all sequences; remove it or choose another name")
    return missing


def _settings_text(settings: HPatchesSettings) -> str:
    """Return the content of `SETTINGS_FILE`; as in version 0.2, the default noise is not named."""
    values = asdict(settings)
    if settings.noise == HPatchesSettings.noise:
        del values["noise"]
    return json.dumps(values)


def make_hpatches(sequence: ImageSequence, output: Path, settings: HPatchesSettings) -> FolderSummary:
    """Write the folder of one sequence into `output`, under its name, atomically.

    Raises:
        DoapError: If an image cannot be read, or no frame is inside all images.
    """
    images = [read_grey(path) for path in sequence.images]
    name_hash = zlib.crc32(sequence.name.encode())  # makes the result independent of the order of sequences
    selection = np.random.default_rng([settings.seed, name_hash])
    frames = choose_frames(images, sequence.homographies, settings.points, selection)
    if not len(frames):
        raise DoapError(
            f"{sequence.images[0].parent}: no frame found that is inside all {len(images)} images; remove the sequence"
        )
    random = torch.Generator().manual_seed(int(np.random.default_rng([settings.seed, name_hash, 1]).integers(1 << 62)))
    strips, overlaps = cut_strips(images, sequence.homographies, frames, NOISE_LEVELS[settings.noise], random)
    write_hpatches_folder(output / sequence.name, strips)
    return FolderSummary(len(frames), overlaps)


def choose_frames(
    images: Sequence[Grey], homographies: NDArray[np.float64], points: int, random: np.random.Generator
) -> Frames:
    """Select frames of the first image whose patches are inside all images, without duplicates.

    Args:
        images: n images, (H, W) uint8.
        homographies: (n, 3, 3) from the first image to each.
        points: Maximum number of frames, in total and per detector; the strongest of each detector are used.
        random: Selects one of overlapping frames, and the frames to keep if there are more than `points`.

    Returns:
        (N, 2, 3), N <= points.
    """
    pooled = []
    for name in POOLED_DETECTORS:
        frames = DETECTORS[name](images[0], None)
        for image, homography in zip(images, homographies, strict=True):
            frames = frames[_is_extractable(transform_frames(frames, homography), image.shape)]
        pooled.append(frames[:points])
    frames = random.permutation(np.concatenate(pooled))
    return frames[suppress_duplicates(frames)][:points]


def cut_strips(
    images: Sequence[Grey],
    homographies: NDArray[np.float64],
    frames: Frames,
    levels: dict[str, JitterLevel],
    random: torch.Generator,
) -> tuple[dict[str, NDArray[np.uint8]], dict[str, float]]:
    """Extract the patches of frames in all images.

    Args:
        images: Six images, the reference first.
        homographies: (6, 3, 3) from the reference to each.
        frames: (N, 2, 3) of the reference.
        levels: Jitter by level; "easy", "hard" and "tough" give the strips e, h and t.
        random: Generator of the jitter.

    Returns:
        The strips, (N, 65, 65) uint8 by name, and the mean overlap of frames with their jittered versions, by level.
    """
    strips = {"ref": extract_patches(images[0], frames, SIZE, EXTENT)}
    overlaps: dict[str, list[float]] = {level: [] for level in levels}
    for number in range(1, IMAGES + 1):
        pyramid = Pyramid(images[number])
        mapped = transform_frames(frames, homographies[number])
        for level, strength in levels.items():
            jittered = jitter_frames(torch.from_numpy(mapped), strength, random).numpy()
            strips[f"{level[0]}{number}"] = extract_patches(pyramid, jittered, SIZE, EXTENT)
            overlaps[level].append(float(overlap(mapped, jittered).mean()))
    return strips, {level: float(np.mean(values)) for level, values in overlaps.items()}


def _is_extractable(frames: Frames, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return whether the patch of each frame is inside an image, in front of the camera, and not too small."""
    is_in_front = np.linalg.det(frames[:, :, :2]) > 0  # points behind the camera are mirrored
    return np.asarray(are_patches_inside(frames, shape, EXTENT) & is_in_front & (scales(frames) >= MIN_SCALE))
