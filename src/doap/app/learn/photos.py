"""Which of the uploaded photos can be trained on."""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from doap.errors import DoapError, inflect
from doap.images.frames import detect_dog
from doap.types import Frames, Grey, Progress, no_progress

MIN_PHOTOS = 4
MIN_KEYPOINTS = 60
THUMBNAIL = 24  # pixels
SAME_CORRELATION = 0.98
VAL_FRACTION = 0.2
MAX_REASONS = 3  # in an error


@dataclass(frozen=True, eq=False)
class Photo:
    """A photo and its frames, strongest first."""

    name: str
    image: Grey
    frames: Frames


@dataclass(frozen=True, eq=False)
class PhotoSplit:
    """Photos to train on and to validate on.

    Attributes:
        train: Photos to train on.
        val: Photos to validate on, at least one.
        left_out: One line per photo that is not used.
    """

    train: list[Photo]
    val: list[Photo]
    left_out: list[str]


def split_photos(
    images: Sequence[tuple[str, Grey]], keypoints: int, seed: int = 0, progress: Progress = no_progress
) -> PhotoSplit:
    """Detect keypoints, leave out photos that cannot be used, and keep a fifth of the others for validation.

    A photo is left out if it has few keypoints, or looks the same as an earlier one: the same point in two photos
    would be a wrong negative, and a validation photo that was trained on says nothing.

    Args:
        images: Name and image of each photo.
        keypoints: Number of strongest keypoints per photo; at least `MIN_KEYPOINTS` are used.
        seed: Determines the validation photos.
        progress: Callback, called as progress(done, total).

    Raises:
        DoapError: If fewer than four photos can be used.
    """
    photos: list[Photo] = []
    thumbnails: list[NDArray[np.float32]] = []
    left_out: list[str] = []
    for number, (name, image) in enumerate(images, 1):
        thumbnail = _thumbnail(image)
        same = next((p.name for p, t in zip(photos, thumbnails, strict=True) if _look_same(t, thumbnail)), None)
        frames = detect_dog(image, max(keypoints, MIN_KEYPOINTS))
        if len(frames) < MIN_KEYPOINTS:
            left_out.append(
                f"{name}: only {len(frames)} {inflect(len(frames), 'keypoint')}; is it flat, blurred or tiny?"
            )
        elif same is not None:
            left_out.append(f"{name}: looks the same as {same}")
        else:
            photos.append(Photo(name, image, frames))
            thumbnails.append(thumbnail)
        progress(number, len(images))
    if len(photos) < MIN_PHOTOS:
        more = f"; and {len(left_out) - MAX_REASONS} more" if len(left_out) > MAX_REASONS else ""
        reasons = f" ({'; '.join(left_out[:MAX_REASONS])}{more})" if left_out else ""
        raise DoapError(
            f"{len(photos)} usable {inflect(len(photos), 'photo')}{reasons}; choose at least {MIN_PHOTOS} different "
            "photos with texture"
        )
    order = np.random.default_rng(seed).permutation(len(photos))
    count = max(1, round(VAL_FRACTION * len(photos)))
    val = set(order[:count].tolist())
    return PhotoSplit(
        [photo for index, photo in enumerate(photos) if index not in val],
        [photos[index] for index in sorted(val)],
        left_out,
    )


def _thumbnail(image: Grey) -> NDArray[np.float32]:
    """Return a small copy of an image as a vector of mean 0 and length 1; zeros for a flat image."""
    small = cv2.resize(image, (THUMBNAIL, THUMBNAIL), interpolation=cv2.INTER_AREA).astype(np.float32).ravel()
    small -= small.mean()
    return np.asarray(small / max(float(np.linalg.norm(small)), 1e-6), np.float32)


def _look_same(first: NDArray[np.float32], second: NDArray[np.float32]) -> bool:
    """Return whether two thumbnails look the same."""
    return bool(first @ second >= SAME_CORRELATION)
