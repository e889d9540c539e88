"""Describing of images in workers, on the CPU or on a GPU that several workers share."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from doap.errors import DoapError
from doap.files import printable
from doap.folders.settings import DescribeSettings
from doap.parallel import Engine
from doap.types import Grey, Record

if TYPE_CHECKING:
    from doap.networks.descriptor import Descriptor

DEVICE_BATCH = 8  # images that a worker describes together on a GPU
DEVICE_WORKERS = 4  # processes that share a GPU by default: one alone leaves it idle while it reads and prepares
WORKER_DIED = "describing it ends the process, by a crash of the decoder or for lack of memory; remove or replace it"

Item = TypeVar("Item")


@dataclass(frozen=True)
class ImageFile:
    """An image to describe, and its mask if it has one."""

    path: Path
    mask: Path | None


@dataclass(frozen=True)
class ImageTask:
    """Images that a worker describes together, and how."""

    images: tuple[ImageFile, ...]
    settings: DescribeSettings
    device: str


@dataclass(frozen=True)
class Failure:
    """Why an image could not be described, in one line."""

    line: str


Pixels = tuple[Grey, NDArray[np.bool_] | None]
"""An image and its mask."""

Outcome = Record | Failure
"""Features of an image as they are stored, or why there are none."""


def describe_images(
    engine: Engine, images: Sequence[ImageFile], settings: DescribeSettings, device: str
) -> Iterator[Outcome]:
    """Describe images in the workers of an engine, in order.

    On the CPU each image is described alone, so that its features do not depend on the others, to the last bit.
    """
    size = 1 if device == "cpu" else DEVICE_BATCH
    groups = (tuple(images[start : start + size]) for start in range(0, len(images), size))
    tasks = (ImageTask(group, settings, device) for group in groups)
    for outcomes in engine.map(describe_task, tasks, died=functools.partial(_without_others, engine)):
        yield from outcomes


def _without_others(engine: Engine, task: ImageTask) -> list[Outcome]:
    """Describe the images of a task that ended its worker one by one, to find the one that does."""
    if len(task.images) == 1:
        return [Failure(printable(f"{task.images[0].path}: {WORKER_DIED}"))]
    tasks = (ImageTask((image,), task.settings, task.device) for image in task.images)
    died = functools.partial(_without_others, engine)
    return [outcome for outcomes in engine.map(describe_task, tasks, died=died) for outcome in outcomes]


def describe_task(task: ImageTask) -> list[Outcome]:
    """Describe images together, or if that fails, one by one; runs in a worker."""
    import torch

    model = load_model(task.settings, task.device)
    read = functools.partial(_read, exif_rotation=task.settings.exif_rotation)
    pixels = [_or_failure(functools.partial(read, file), file.path) for file in task.images]
    readable = [image for image in pixels if not isinstance(image, Failure)]
    if len(readable) > 1:
        with contextlib.suppress(DoapError, torch.cuda.OutOfMemoryError):
            records = iter(_describe(readable, task.settings, model))
            return [image if isinstance(image, Failure) else next(records) for image in pixels]
    return [_describe_one(image, file, task.settings, model) for image, file in zip(pixels, task.images, strict=True)]


def start_loading(engine: Engine, settings: DescribeSettings, device: str, workers: int) -> None:
    """Start workers and let them load the model, without waiting for them."""
    engine.start(load_task, [ImageTask((), settings, device)] * workers)


def load_task(task: ImageTask) -> None:
    """Load the model of a task without images; runs in a worker.

    Errors are ignored: the first image raises them again.
    """
    with contextlib.suppress(Exception):
        load_model(task.settings, task.device)


@functools.cache
def load_model(settings: DescribeSettings, device: str) -> "Descriptor":
    """Load the model of some settings, once per process."""
    from doap.networks.registry import load

    return load(settings.model, device, fast=settings.precision == "fast", int8=settings.precision == "int8")


def _read(file: ImageFile, exif_rotation: bool) -> Pixels:
    from doap.images.reading import read_grey, read_mask

    return read_grey(file.path, exif_rotation), read_mask(file.mask, exif_rotation) if file.mask else None


def _describe(images: Sequence[Pixels], settings: DescribeSettings, model: "Descriptor") -> list[Record]:
    from doap.features import detect_and_describe

    features = detect_and_describe(
        [image for image, _ in images],
        model,
        detector=settings.detector,
        frames=settings.frames,
        max_keypoints=settings.max_keypoints,
        mask=[mask for _, mask in images],
        min_response=settings.min_response,
        max_size=settings.max_size,
    )
    return [dict(one.to_record(settings.store)) for one in features]


def _describe_one(
    pixels: Pixels | Failure, file: ImageFile, settings: DescribeSettings, model: "Descriptor"
) -> Outcome:
    import cv2
    import torch

    if isinstance(pixels, Failure):
        return pixels
    errors = (DoapError, MemoryError, cv2.error, torch.cuda.OutOfMemoryError)
    return _or_failure(lambda: _describe([pixels], settings, model)[0], file.path, errors)


def _or_failure(
    work: Callable[[], Item], path: Path, errors: tuple[type[Exception], ...] = (DoapError, MemoryError)
) -> Item | Failure:
    """Return what `work` returns, or a failure where the image is to blame."""
    try:
        return work()
    except errors as error:
        message = str(error) if isinstance(error, DoapError) else f"{type(error).__name__} {error}".splitlines()[0]
        name = printable(str(path))
        line = printable(message.strip())
        return Failure(line if line.startswith(f"{name}: ") else f"{name}: {line}")
