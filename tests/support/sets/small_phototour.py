"""A small Phototour folder that a network can learn: noisy views of random blobs, in the official format."""

from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter

from support.sets.official_formats import write_phototour

PAIRS = "m50_100000_100000_0.txt"


def learnable_phototour(folder: Path, points: int = 80, pairs: int = 120, seed: int = 0) -> Path:
    """Write three patches per point; half of the pairs match."""
    random = np.random.default_rng(seed)
    blobs = gaussian_filter(random.normal(size=(points, 1, 64, 64)), (0, 0, 6, 6)) * 800
    views = blobs + gaussian_filter(random.normal(size=(points, 3, 64, 64)), (0, 0, 3, 3)) * 300
    ids = 5 + 2 * np.arange(points)
    write_phototour(folder, np.clip(views + 128, 0, 255).astype(np.uint8).reshape(-1, 64, 64), np.repeat(ids, 3))
    rows = []
    for number in range(pairs):
        first = int(random.integers(3 * points))
        if number % 2:
            second = (first // 3 + int(random.integers(1, points))) % points * 3 + int(random.integers(3))
        else:
            second = first // 3 * 3 + (first + 1) % 3
        rows.append(f"{first} {ids[first // 3]} 0 {second} {ids[second // 3]} 0 0\n")
    (folder / PAIRS).write_text("".join(rows))
    return folder
