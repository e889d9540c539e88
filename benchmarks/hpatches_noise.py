"""The noise of the frames in HPatches folders, measured by registering patches.

    python benchmarks/hpatches_noise.py data/hpatches-patches data/folders/v_churchill

Prints how far the patches of the first image's easy, hard and tough strips are rotated, scaled, stretched and shifted
relative to those of the reference, as quartiles over the patches. The overlap of frames does not show rotations.
Patches are aligned by the enhanced correlation coefficient (Evangelidis and Psarakis, 2008), from several starts; pairs
that do not reach a correlation of 0.9 are left out. Large noise is therefore underestimated: compare folders with each
other, measured alike.
"""

import argparse
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.datasets.official.hpatches import EXTENT, NOISES, SIZE, find_sequences, read_strip

CENTRE = np.full(2, (SIZE - 1) / 2)
SCALE_PIXELS = SIZE / 2 / EXTENT  # pixels per scale of the frame
STARTS = [(angle, shift) for angle in (0, -20, 20) for shift in ((0, 0), (7, 0), (-7, 0), (0, 7), (0, -7))]
CORRELATION, CERTAIN = 0.9, 0.97
BLUR = 2.0  # pixels
ITERATIONS = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 40, 1e-3)
COLUMNS = ("rotation, degrees", "scale, log2", "stretch, log2", "shift, scales")


def register(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.float64] | None:
    """Return the affine map, (2, 3), from the pixels of a patch to those of another; None if they do not align."""
    reference, other = (cv2.GaussianBlur(patch.astype(np.float32), (0, 0), BLUR) for patch in (first, second))
    everywhere = np.ones_like(first)  # a mask, without which OpenCV's types allow no size of its filter
    best, correlation = None, CORRELATION
    for angle, shift in STARTS:
        turn = cv2.getRotationMatrix2D((CENTRE[0], CENTRE[1]), angle, 1.0)
        turn[:, 2] += shift
        try:
            value, matrix = cv2.findTransformECC(
                reference, other, turn.astype(np.float32), cv2.MOTION_AFFINE, ITERATIONS, everywhere, 1
            )
        except cv2.error:  # it does not converge
            continue
        if value > correlation:
            best, correlation = matrix.astype(np.float64), value
        if correlation > CERTAIN:
            break
    return best


def noise_of(matrix: NDArray[np.float64]) -> list[float]:
    """Return the rotation, scale, stretch and shift of an affine map, in the units of `COLUMNS`."""
    left, (longer, shorter), right = np.linalg.svd(matrix[:, :2])
    rotation = left @ right
    shift = matrix @ [*CENTRE, 1] - CENTRE
    return [
        float(np.degrees(abs(np.arctan2(rotation[1, 0], rotation[0, 0])))),
        float(abs(np.log2(longer * shorter) / 2)),
        float(np.log2(longer / shorter)),
        float(np.linalg.norm(shift) / SCALE_PIXELS),
    ]


def measure(sequence: Path, noise: str, count: int, seed: int) -> NDArray[np.float64]:
    """Return the noise of patches of one strip, (N, 4); N is at most `count`."""
    reference, other = read_strip(sequence / "ref.png"), read_strip(sequence / f"{noise[0]}1.png")
    selected = np.random.default_rng(seed).permutation(len(reference))[:count]
    matrices = [register(reference[index], other[index]) for index in selected]
    rows = [noise_of(matrix) for matrix in matrices if matrix is not None]
    return np.array(rows).reshape(-1, len(COLUMNS))


def main() -> None:
    """Print the quartiles of the noise of each sequence and level."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders in the format of HPatches")
    parser.add_argument("--patches", type=int, default=240, help="number of patches per strip")
    parser.add_argument("--seed", type=int, default=0, help="seed of the choice of patches")
    options = parser.parse_args()
    print(f"{'':24}{'aligned':>9}", *(f"{column:>24}" for column in COLUMNS))
    for sequence in [sequence for folder in options.folders for sequence in find_sequences(folder)]:
        for noise in NOISES[1:]:
            values = measure(sequence, noise, options.patches, options.seed)
            quartiles = (
                np.percentile(values, [25, 50, 75], axis=0).T if len(values) else np.full((len(COLUMNS), 3), np.nan)
            )
            cells = ["{:.2f} {:.2f} {:.2f}".format(*row) for row in quartiles]
            print(f"{sequence.name + ', ' + noise:24}{len(values):9}", *(f"{cell:>24}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
