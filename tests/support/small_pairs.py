"""Small image sequences and pairs with true homographies, in the layouts that are read."""

from pathlib import Path

import cv2
import numpy as np
import skimage
from PIL import Image

SHAPE = 200, 240  # height, width


def homography(number: int, seed: int) -> np.ndarray:
    """From the first image to image `number`: the more, the larger."""
    random = np.random.default_rng(seed)
    angle, zoom = 0.08 * number, 1 + 0.03 * number
    c, s = zoom * np.cos(angle), zoom * np.sin(angle)
    shift = random.uniform(-4, 4, 2) * number
    return np.array([[c, -s, 25 + shift[0]], [s, c, -10 + shift[1]], [1e-5 * number, 0, 1]])


def picture(seed: int) -> np.ndarray:
    """A part of a photograph, another one for each seed up to 5."""
    x, y = 130 * (seed % 2), 100 * (seed // 2)
    return np.ascontiguousarray(skimage.data.camera()[y : y + SHAPE[0], x : x + SHAPE[1]])


def warp(image: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(0).normal(0, 2, image.shape)
    seen = cv2.warpPerspective(image, matrix, SHAPE[::-1], borderMode=cv2.BORDER_REFLECT)
    return np.clip(seen + noise, 0, 255).astype(np.uint8)


def write_sequence(folder: Path, seed: int) -> Path:
    """Six images in Oxford's layout."""
    folder.mkdir(parents=True)
    first = picture(seed)
    Image.fromarray(first).save(folder / "img1.png")
    for number in range(2, 7):
        matrix = homography(number, seed)
        Image.fromarray(warp(first, matrix)).save(folder / f"img{number}.png")
        np.savetxt(folder / f"H1to{number}p", matrix)
    return folder


def write_pair(folder: Path, seed: int, truth: str = "H.txt") -> np.ndarray:
    """Two pictures, a.png and b.png, with H.txt or points.csv; gives the homography."""
    folder.mkdir(parents=True, exist_ok=True)
    first, matrix = picture(seed), homography(2, seed)
    Image.fromarray(first).save(folder / "a.png")
    Image.fromarray(warp(first, matrix)).save(folder / "b.png")
    if truth == "H.txt":
        np.savetxt(folder / truth, matrix)
    else:
        write_points(folder / truth, matrix)
    return matrix


def write_points(file: Path, matrix: np.ndarray, count: int = 12) -> None:
    """Labelled points in pixels, under a heading."""
    points = np.random.default_rng(1).uniform((20, 20), (SHAPE[1] - 20, SHAPE[0] - 20), (count, 2))
    sent = np.column_stack([points, np.ones(count)]) @ matrix.T
    rows = np.hstack([points, sent[:, :2] / sent[:, 2:]])
    lines = ["x1,y1,x2,y2", *(",".join(f"{value:.2f}" for value in row) for row in rows)]
    file.write_text("\n".join(lines) + "\n")
