"""Images of a folder to features on disk, by all cores or a GPU."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from doap.errors import DoapError
from doap.folders.feature_store import FeatureStore, LongNameError, feature_store
from doap.folders.image_tasks import DEVICE_WORKERS, Failure, ImageFile, Outcome, describe_images, start_loading
from doap.folders.images import NamedImage, find_images, unique_names
from doap.folders.settings import DescribeSettings, file_stamp
from doap.locking import only_writer
from doap.parallel import EngineName, open_engine
from doap.parallel.engine import available_cores
from doap.types import Progress, no_progress


@dataclass
class DescribeSummary:
    """What `describe_folder` did.

    Attributes:
        described: Number of images described by this run.
        unchanged: Number of images whose features an earlier run had made.
        without_keypoints: Names of the images described by this run that have no keypoint.
        failures: One line per image that could not be described.
        others: Number of images in the output that were not given; their features are kept.
    """

    described: int = 0
    unchanged: int = 0
    without_keypoints: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    others: int = 0


@dataclass(frozen=True)
class _Entry:
    """An image to describe: its name, its stamp and its files."""

    name: str
    stamp: str
    file: ImageFile


def describe_folder(
    images: str | Path | Iterable[str | Path],
    output: str | Path,
    settings: DescribeSettings | None = None,
    *,
    names: Iterable[str] | None = None,
    masks: str | Path | None = None,
    device: str = "cpu",
    engine: EngineName = "local",
    workers: int | None = None,
    force: bool = False,
    progress: Progress = no_progress,
) -> DescribeSummary:
    """Detect and describe keypoints of all images of a folder, and store the features.

    After an interruption, the next call continues: images whose size, time and settings are unchanged are not described
    again. An image that cannot be read is listed in the summary. On the CPU, every image is described with one thread,
    and the output does not depend on the engine, the number of workers or interruptions, byte for byte.

    Args:
        images: Folder, image, or several of them. An image is named by its path relative to the folder; see
            `find_images`.
        output: HDF5 file (.h5), or folder for one NAME.npz per image.
        settings: Model, detector and number format; by default those of `DescribeSettings`.
        names: Names of the images to describe among these; None for all.
        masks: Folder with a mask NAME.png for each image NAME, as COLMAP's; keypoints are kept where it is not 0. An
            image without mask is described whole.
        device: Device on which the workers describe; they share a GPU.
        engine: "local" for processes of this machine, "ray" for a Ray cluster on which images and model have the
            same paths; it describes on CPUs.
        workers: Number of processes; by default one per core, and up to four on a GPU.
        force: Replace features of another model or of other settings in the output.
        progress: Called with the numbers of finished and of all images to describe.

    Raises:
        DoapError: If there is no image, or none of a name, the output holds other features or cannot be written, or
            Ray is to use a GPU.

    Example:
        >>> from doap.folders import DescribeSettings, describe_folder
        >>> describe_folder("photos", "features.h5", DescribeSettings("doap-256b"))  # doctest: +SKIP
        DescribeSummary(described=128, unchanged=0, without_keypoints=[], failures=[], others=0)
    """
    settings = settings or DescribeSettings()
    paths = [Path(images)] if isinstance(images, str | Path) else [Path(image) for image in images]
    named = _select(find_images(paths), names)
    mask_files = {} if masks is None else _find_masks(Path(masks), [image.name for image in named])
    store = feature_store(Path(output))
    if device != "cpu":
        if engine == "ray":
            raise DoapError(f"device {device}: the engine ray describes on CPUs; pass --device cpu")
        workers = workers or min(DEVICE_WORKERS, available_cores())
    with only_writer(Path(output)), open_engine(engine, workers) as pool:
        start_loading(pool, settings, device, min(pool.workers, len(named)))
        identity = settings.identity()
        store.open(identity, force)
        entries = []
        for image in named:
            mask = mask_files.get(image.name)
            stamp = file_stamp([image.path] + ([mask] if mask else []), identity)
            if store.stamp(image.name) != stamp:
                entries.append(_Entry(image.name, stamp, ImageFile(image.path, mask)))
        summary = DescribeSummary(unchanged=len(named) - len(entries))
        outcomes = describe_images(pool, [entry.file for entry in entries], settings, device)
        progress(0, len(entries))
        for done, (entry, outcome) in enumerate(zip(entries, outcomes, strict=True), 1):
            _store(store, entry, outcome, summary)
            progress(done, len(entries))
        summary.others = len(set(store.finish()) - {image.name for image in named})
    return summary


def _store(store: FeatureStore, entry: _Entry, outcome: Outcome, summary: DescribeSummary) -> None:
    if isinstance(outcome, Failure):
        summary.failures.append(outcome.line)
        store.remove(entry.name)
        return
    try:
        store.save(entry.name, {**outcome, "stamp": entry.stamp})
    except LongNameError as error:
        summary.failures.append(str(error))
        return
    summary.described += 1
    if not np.size(outcome["frames"]):
        summary.without_keypoints.append(entry.name)


def _select(images: list[NamedImage], names: Iterable[str] | None) -> list[NamedImage]:
    """Return the images of these names; all if there are none."""
    if names is None:
        return images
    chosen = unique_names(names)
    unknown = sorted(chosen - {image.name for image in images})
    if unknown:
        raise DoapError(f"names: no image is called {unknown[0]}; an image is named by its path relative to the folder")
    return [image for image in images if image.name in chosen]


def _find_masks(folder: Path, names: list[str]) -> dict[str, Path]:
    """Return the masks of the images that have one, by name."""
    if not folder.is_dir():
        raise DoapError(f"{folder}: no such folder of masks")
    paths = {name: folder / f"{name}.png" for name in names}
    files = {name: path for name, path in paths.items() if os.path.lexists(path) and path.is_file()}  # or too long
    if names and not files:
        raise DoapError(f"{folder}: no mask of any image; that of {names[0]} is called {names[0]}.png")
    return files
