"""Repeatability of detectors by Mikolajczyk's protocol, to compare ours with others' on the Oxford sequences."""

from pathlib import Path

import cv2
import numpy as np

from doap.photos.frames import overlap, scales, transform_frames, transform_points
from doap.photos.images import read_grey

RADIUS = 30.0  # to which the reference ellipse is enlarged, so that small and large frames are judged alike


def read_pair(folder: Path, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    storage = cv2.FileStorage(str(folder / f"H1to{number}p.xml"), cv2.FILE_STORAGE_READ)
    return read_grey(folder / "img1.png"), read_grey(folder / f"img{number}.png"), storage.getFirstTopLevelNode().mat()


def inside(frames: np.ndarray, homography: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    x, y = transform_points(frames[:, :, 2], homography).T
    return (x >= 0) & (y >= 0) & (x <= shape[1] - 1) & (y <= shape[0] - 1)


def repeatability(
    detected: tuple[np.ndarray, np.ndarray],
    shapes: tuple[tuple[int, int], tuple[int, int]],
    homography: np.ndarray,
    error: float = 0.5,
    enlarge: float | None = None,
) -> float:
    """Share of frames in the common part that have a partner of their own with less overlap error.

    Ellipses are enlarged so that the one of the first image has radius 30, or by a factor that is given.
    """
    first = detected[0][inside(detected[0], homography, shapes[1])]
    second = detected[1][inside(detected[1], np.linalg.inv(homography), shapes[0])]
    sent = transform_frames(first, homography)
    factor = RADIUS / scales(sent) if enlarge is None else np.full(len(sent), enlarge)
    away = np.linalg.norm(sent[:, None, :, 2] - second[None, :, :, 2], axis=2)
    ratio = np.abs(np.log2(scales(sent)[:, None] / scales(second)[None]))
    # Equal ellipses shifted by 0.53 of a half axis overlap by a half.
    reach = 0.6 * factor * np.linalg.norm(sent[:, :, :2], 2, axis=(1, 2))
    i, j = np.nonzero((ratio < 0.5) & (away < reach[:, None]))
    grow = np.stack([factor[i], factor[i], np.ones(len(i))], 1)[:, None].astype(np.float32)
    parts = [slice(k, k + 4096) for k in range(0, len(i), 4096)]
    found = np.concatenate([overlap(sent[i[p]] * grow[p], second[j[p]] * grow[p], 20) for p in parts])
    free = np.ones(len(sent), bool), np.ones(len(second), bool)
    pairs = 0
    for k in np.argsort(-found, kind="stable"):
        if found[k] > 1 - error and free[0][i[k]] and free[1][j[k]]:
            free[0][i[k]] = free[1][j[k]] = False
            pairs += 1
    return pairs / min(len(sent), len(second))
