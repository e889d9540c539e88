"""Small image sequences and pairs with known homographies, in the supported layouts."""

from pathlib import Path

import cv2
import numpy as np
import skimage
from PIL import Image

from doap.types import Grey, Homography

SHAPE = 200, 240  # height, width


def homography(number: int, seed: int) -> Homography:
    """Return the homography from the first image to image `number`; larger numbers move it further."""
    random = np.random.default_rng(seed)
    angle, zoom = 0.08 * number, 1 + 0.03 * number
    c, s = zoom * np.cos(angle), zoom * np.sin(angle)
    shift = random.uniform(-4, 4, 2) * number
    return np.array([[c, -s, 25 + shift[0]], [s, c, -10 + shift[1]], [1e-5 * number, 0, 1]])


def crop_photo(seed: int) -> Grey:
    """Return a crop of a photograph, a different one for each seed up to 5."""
    x, y = 130 * (seed % 2), 100 * (seed // 2)
    photo: Grey = skimage.data.camera()
    return np.ascontiguousarray(photo[y : y + SHAPE[0], x : x + SHAPE[1]])


def warp(image: Grey, matrix: Homography) -> Grey:
    """Warp an image and add noise."""
    noise = np.random.default_rng(0).normal(0, 2, image.shape)
    warped = cv2.warpPerspective(image, matrix, SHAPE[::-1], borderMode=cv2.BORDER_REFLECT)
    return np.clip(warped + noise, 0, 255).astype(np.uint8)


def write_sequence(folder: Path, seed: int) -> Path:
    """Write six images in the layout of Oxford."""
    folder.mkdir(parents=True)
    first = crop_photo(seed)
    Image.fromarray(first).save(folder / "img1.png")
    for number in range(2, 7):
        matrix = homography(number, seed)
        Image.fromarray(warp(first, matrix)).save(folder / f"img{number}.png")
        np.savetxt(folder / f"H1to{number}p", matrix)
    return folder


def write_pair(folder: Path, seed: int, ground_truth: str = "H.txt") -> Homography:
    """Write two images, a.png and b.png, with H.txt or points.csv, and return the homography."""
    folder.mkdir(parents=True, exist_ok=True)
    first, matrix = crop_photo(seed), homography(2, seed)
    Image.fromarray(first).save(folder / "a.png")
    Image.fromarray(warp(first, matrix)).save(folder / "b.png")
    if ground_truth == "H.txt":
        np.savetxt(folder / ground_truth, matrix)
    else:
        write_points(folder / ground_truth, matrix)
    return matrix


def write_points(file: Path, matrix: Homography, count: int = 12) -> None:
    """Write labelled points in pixels, with a heading."""
    points = np.random.default_rng(1).uniform((20, 20), (SHAPE[1] - 20, SHAPE[0] - 20), (count, 2))
    sent = np.column_stack([points, np.ones(count)]) @ matrix.T
    rows = np.hstack([points, sent[:, :2] / sent[:, 2:]])
    lines = ["x1,y1,x2,y2", *(",".join(f"{value:.2f}" for value in row) for row in rows)]
    file.write_text("\n".join(lines) + "\n")
