"""A small frame set whose geometry is known: still views, planes and scenes seen by several photos, single photos."""

from dataclasses import dataclass, field
from functools import cache

import cv2
import numpy as np
import skimage

from doap.datasets.sets.frame_set import SOURCES, FrameSet, encode

SHAPE = 180, 240  # height, width
MOTION = np.array([[1.01, 0.004, 2.5], [-0.003, 0.99, -1.25], [0, 0, 1]])  # of the second picture of a still view
PLANE = np.array([[0.95, 0.1, 12], [-0.08, 1.02, 6], [1e-4, -5e-5, 1]])  # from photo k to photo k + 1 of a plane


@dataclass
class Maker:
    """Collects scenes, frame by frame."""

    pictures: list[np.ndarray] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    rows: list[tuple[int, int, int, int, float, float]] = field(default_factory=list)
    sequences: list[str] = field(default_factory=list)
    groups: int = 0

    def add(self, name: str, source: str, photos: dict[str, np.ndarray], centres: list[np.ndarray]) -> None:
        """A sequence: its photos by name, and (G, 2) centres of all groups in each, nan where one is not shown."""
        for (photo, picture), places in zip(photos.items(), centres, strict=True):
            for group, (x, y) in enumerate(places):
                if np.isfinite(x):
                    number = len(self.pictures)
                    self.rows.append((number, self.groups + group, len(self.sequences), SOURCES.index(source), x, y))
            self.pictures.append(encode(picture))
            self.names.append(photo)
        self.groups += len(centres[0])
        self.sequences.append(name)

    def made(self) -> FrameSet:
        photos, groups, sequences, sources = (np.array([row[k] for row in self.rows], np.int64) for k in range(4))
        frames = np.array([[[3, 0, x], [0, 3, y]] for *_, x, y in self.rows], np.float32)
        return FrameSet(
            self.pictures, self.names, photos, frames, groups, sequences, sources, self.sequences,
            np.stack([groups[:-1], groups[1:]], 1)[sequences[:-1] == sequences[1:]][::7], extent=9.0,
        )  # fmt: skip


def look(number: int) -> np.ndarray:
    """A part of a photograph, another one for each number."""
    x, y = (37 * number) % 270, (53 * number) % 330
    return np.ascontiguousarray(skimage.data.camera()[y : y + SHAPE[0], x : x + SHAPE[1]])


def send(points: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    sent = np.column_stack([points, np.ones(len(points))]) @ matrix.T
    return sent[:, :2] / sent[:, 2:]


def anywhere(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform((8, 8), (SHAPE[1] - 8, SHAPE[0] - 8), (count, 2))


def add_still(maker: Maker, folder: str, number: int) -> None:
    """Two pictures, the second darker and moved; the first shows more of the groups."""
    first = look(number)
    second = cv2.warpPerspective((first * 0.4).astype(np.uint8), MOTION, SHAPE[::-1], borderMode=cv2.BORDER_REPLICATE)
    points = anywhere(30, number)
    there = send(points, MOTION)
    there[:4] = np.nan
    maker.add(folder, "static", {f"{folder}/a.png": first, f"{folder}/b.png": second}, [points, there])


def add_plane(maker: Maker, folder: str, number: int, photos: int = 3) -> None:
    """Photos of a plane, each moved by PLANE against the one before; the last shows 50 of 90 groups."""
    points, seen = anywhere(90, number), {}
    centres = []
    for photo in range(photos):
        matrix = np.linalg.matrix_power(PLANE, photo)
        seen[f"{folder}/{photo}.png"] = cv2.warpPerspective(look(number), matrix, SHAPE[::-1])
        centres.append(send(points, matrix))
    centres[-1][50:] = np.nan
    maker.add(folder, "tracks", seen, centres)


def project(points: np.ndarray, photo: int) -> np.ndarray:
    """Where a camera that moves and turns with the number of its photo sees (P, 3) points."""
    turn, _ = cv2.Rodrigues(np.array([0.02, -0.12, 0.03]) * photo)
    x, y, z = (points @ turn.T + np.array([0.5, 0.05, 0.1]) * photo).T
    return np.column_stack([200 * x / z + SHAPE[1] / 2, 200 * y / z + SHAPE[0] / 2])


def deep_points(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform((-1.6, -1.3, 3), (1.6, 1.3, 6), (count, 3))


def add_scene(maker: Maker, folder: str, number: int, photos: int = 3) -> None:
    """Photos of points in space."""
    points = deep_points(80, number)
    seen = {f"{folder}/{photo}.png": look(number + photo) for photo in range(photos)}
    maker.add(folder, "tracks", seen, [project(points, photo) for photo in range(photos)])


def add_singles(maker: Maker, folder: str, count: int) -> None:
    """Photos that have nothing to do with each other."""
    for number in range(count):
        name = f"{folder}/{number:02d}.png"
        maker.add(name, "views", {name: look(number)}, [anywhere(25, number)])


@cache  # nobody changes it
def small_frame_set() -> FrameSet:
    """Two still views, two planes, two scenes, a collection of 14 photos, and a folder of 3 that nothing links."""
    maker = Maker()
    add_singles(maker, "set/many", 14)
    for number in range(2):
        add_still(maker, f"set/still{number}", number)
        add_plane(maker, f"set/plane{number}", number)
        add_scene(maker, f"set/scene{number}", number)
    add_singles(maker, "set/few", 3)
    return maker.made()
