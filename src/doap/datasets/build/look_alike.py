"""Sets in the official formats, made from photos, to run the paper's protocols where the official data is missing.

    phototour-a, -b, -c    patches of tracked points, in three sets that share no scene; matching and non-matching pairs
    romepatches            groups of ten patches of tracked points; the halves share no scene
    hpatches               ten sequences: warped photos, and photos under different light; splits.json with split a
    look-alike.json        settings, source and counts; written last

They are read like the official data. Figures on them compare methods with each other, and cannot be compared with
figures on the official data.
"""

import json
import shutil
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from doap.datasets.build.building import build
from doap.datasets.build.look_alike_patches import (
    PER_GROUP,
    find_point_views,
    partition_scenes,
    write_phototour_part,
    write_romepatches_half,
)
from doap.datasets.build.look_alike_sequences import choose_sequence_scenes, write_hpatches_part
from doap.datasets.build.settings import BuildSettings, LookAlikeSettings
from doap.datasets.official.romepatches import HALVES
from doap.datasets.sets.frame_set import KIND, FrameSet
from doap.datasets.sets.scenes import SetScene, find_scenes
from doap.datasets.sets.storage import MANIFEST, kind_of
from doap.errors import DoapError
from doap.files import atomic_folder, make_folder, write_text
from doap.images.reading import find_photos
from doap.parsing.json_files import read_json
from doap.types import Progress, StepProgress, no_step_progress

PHOTOTOUR_SETS = ("phototour-a", "phototour-b", "phototour-c")
RECORD = "look-alike.json"
STARTED = ".started.json"  # settings and source of an incomplete folder
COUNTS = "counts.json"  # of a finished set, inside it
LOCK = ".lock"
FRAMES = "frames"  # frame set that is built from photos

SetWriter = Callable[[Path, Progress], dict[str, Any]]
"""Writes a set into an empty folder and returns its counts, called as write(folder, progress)."""


def make_look_alike(
    source: Path, folder: Path, settings: LookAlikeSettings, progress: StepProgress = no_step_progress
) -> None:
    """Make the sets of the module docstring. Finished sets are kept: an interrupted run continues.

    Args:
        source: A frame set with tracked points, or a folder of photos, which is built as `folder`/frames first.
        folder: The folder to create, or to continue; nothing is done if it is complete.
        settings: Sizes and the seed.
        progress: Callback, called as progress(step, done, total).

    Raises:
        DoapError: If the folder has other settings, another source or other content, or the source has too few scenes;
            a new folder is removed then.
    """
    started = {"settings": asdict(settings), "source": _identify(source)}
    _claim(folder, started)
    try:
        with FileLock(folder / LOCK, timeout=0):
            if not (folder / RECORD).is_file():
                _make_sets(source, folder, settings, started, progress)
    except Timeout as error:
        raise DoapError(f"{folder}: another run is making these sets; wait until it ends") from error


def is_look_alike(folder: Path) -> bool:
    """Return whether the folder of a data set was made by `make_look_alike`."""
    return (folder / COUNTS).is_file()


def read_record(folder: Path) -> dict[str, Any]:
    """Read the record of complete sets: "settings", "source", and "sets", the counts of each set by its name.

    Raises:
        DoapError: If the sets are incomplete.
    """
    record = _read_json(folder / RECORD)
    if record is None:
        raise DoapError(f"{folder}: no complete sets here ({RECORD}); make them with doap data look-alike")
    return record


def _make_sets(
    source: Path, folder: Path, settings: LookAlikeSettings, started: dict[str, Any], progress: StepProgress
) -> None:
    try:
        writers = _plan(_open_source(source, folder, settings, progress), source, settings)
    except DoapError:
        _release(folder)
        raise
    sets: dict[str, Any] = {}
    for name, write in writers.items():
        for unfinished in folder.glob(f".{name}-*"):  # of a killed run; the lock excludes other runs
            shutil.rmtree(unfinished)
        if not (folder / name).exists():
            with atomic_folder(folder / name) as temporary:
                counts = write(temporary, partial(progress, f"making {name}"))
                write_text(temporary / COUNTS, json.dumps(counts, indent=1))
        sets[name] = _read_json(folder / name / COUNTS)
    write_text(folder / RECORD, json.dumps({**started, "sets": sets}, indent=1))
    (folder / STARTED).unlink(missing_ok=True)


def _plan(data: FrameSet, source: Path, settings: LookAlikeSettings) -> dict[str, SetWriter]:
    """Divide the scenes among the sets, and return the writer of each set by its name."""
    scenes = {scene.name: scene for scene in find_scenes(data)}
    sizes = {
        name: find_point_views(data, [scene], np.random.default_rng(0)).sizes
        for name, scene in scenes.items()
        if scene.source == "tracks"
    }
    sizes = {name: views for name, views in sizes.items() if len(views)}
    if len(sizes) < len(PHOTOTOUR_SETS):
        raise DoapError(
            f"{source}: {len(sizes)} scenes with tracked points, but {len(PHOTOTOUR_SETS)} sets that share no scene "
            "need as many; add overlapping photos of other scenes, one folder per scene"
        )
    try:
        sequences = choose_sequence_scenes(list(scenes.values()), settings.seed)
    except DoapError as error:
        raise DoapError(f"{source}: {error}; add photos of other scenes") from error
    parts = partition_scenes({name: len(views) for name, views in sizes.items()}, 3, settings.seed)
    complete = {name: int((views >= PER_GROUP).sum()) for name, views in sizes.items()}
    halves = partition_scenes(complete, len(HALVES), settings.seed)

    def write_phototour(name: str, part: list[SetScene], folder: Path, progress: Progress) -> dict[str, Any]:
        return write_phototour_part(data, folder, part, settings, _generator(settings, name), progress)

    def write_romepatches(folder: Path, progress: Progress) -> dict[str, Any]:
        return {
            half: write_romepatches_half(
                data, folder, half, [scenes[name] for name in part], settings, _generator(settings, half), progress
            )
            for half, part in zip(HALVES, halves, strict=True)
        }

    return {
        **{
            name: partial(write_phototour, name, [scenes[scene] for scene in part])
            for name, part in zip(PHOTOTOUR_SETS, parts, strict=True)
        },
        "romepatches": write_romepatches,
        "hpatches": lambda folder, progress: write_hpatches_part(data, folder, sequences, settings, progress),
    }


def _open_source(source: Path, folder: Path, settings: LookAlikeSettings, progress: StepProgress) -> FrameSet:
    """Open the frame set, or build it from photos as `folder`/frames if that does not exist yet."""
    if kind_of(source) == KIND:
        return FrameSet.open(source)
    frames = folder / FRAMES
    if not frames.exists():
        build([source], frames, BuildSettings(seed=settings.seed), pixels=False, progress=progress)
    return FrameSet.open(frames)


def _identify(source: Path) -> dict[str, Any]:
    """Return what identifies a source, independent of where it is stored.

    Raises:
        DoapError: If it is neither a frame set nor a folder with photos.
    """
    kind = kind_of(source)
    name = source.resolve().name
    if kind == KIND:
        return {"frame set": name, "crc32": zlib.crc32((source / MANIFEST).read_bytes())}
    if kind is not None:
        raise DoapError(f"{source}: a {kind} has no photos; give a frame set, made by doap data build --frames")
    if not source.is_dir():
        raise DoapError(f"{source}: no such folder; give a frame set, or a folder of photos")
    return {"photos": name, "count": len(find_photos([source]))}


def _claim(folder: Path, started: dict[str, Any]) -> None:
    """Create the folder, or check that it was started with the same settings and source."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        make_folder(folder)
        write_text(folder / STARTED, json.dumps(started))
        return
    stored = _read_json(folder / RECORD) or _read_json(folder / STARTED)
    if stored is None:
        raise DoapError(f"{folder}: exists already; remove it or choose another name")
    for key, value in started.items():
        if stored.get(key) != value:
            other = json.dumps(stored.get(key))
            raise DoapError(f"{folder}: was made with other {key}, {other}; use the same or choose another name")


def _release(folder: Path) -> None:
    """Remove what `_claim` and `_open_source` wrote, unless a set is finished: another source may be used next."""
    if any(folder.glob(f"*/{COUNTS}")):
        return
    if (folder / FRAMES).exists():
        shutil.rmtree(folder / FRAMES)
    for name in (STARTED, LOCK):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # a link, or a folder with files of others
        folder.rmdir()


def _read_json(file: Path) -> dict[str, Any] | None:
    """Return the content of a file of this module; None if it does not exist."""
    if not file.is_file():
        return None
    try:
        return dict(read_json(file))
    except (ValueError, TypeError) as error:
        raise DoapError(f"{file}: damaged ({error}); remove its folder and make the sets again") from error


def _generator(settings: LookAlikeSettings, name: str) -> np.random.Generator:
    return np.random.default_rng([settings.seed, zlib.crc32(name.encode())])
