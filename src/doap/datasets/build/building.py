"""A set from anybody's photos: what each folder offers, scene by scene, so that a stopped build goes on.

What is found in a folder and in a scene is kept in a hidden folder beside the set, `.NAME.building`, until the set is
whole. Its files are named by the photos (name, size, time) and the settings they come from: a build that is started
again takes up what is still true and makes the rest.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count, groupby
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from doap.datasets.build.assembly import BuildSettings, Photo, Scene, assemble, read_photo
from doap.datasets.build.cutting import SIZE, VIEWS, append_cuts
from doap.datasets.build.summary import write_summary
from doap.datasets.sets.writer import write_patch_set
from doap.errors import DoapError
from doap.files import atomic_file, atomic_folder, make_folder, write_text
from doap.images.reading import find_photos, read_grey
from doap.images.reconstruction.scene_frames import MIN_GROUPS, SceneFrames, static_view, tracked_scene, views_of
from doap.images.reconstruction.scenes import Belonging, group_photos
from doap.types import Grey

VERSION = 1  # of what is kept: raise it when a scene gives something else

# Told what is being done, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Built:
    """A finished set, the scenes it was made of, and what was left out, a line each."""

    scenes: list[Scene]
    left_out: list[str]


def build(
    paths: Sequence[Path],
    target: Path,
    settings: BuildSettings,
    pixels: bool = True,
    progress: Progress = lambda _what, _done, _total: None,
) -> Built:
    """Make a patch set, or a frame set, from photos and folders of photos.

    Photos of one scene, or of one still view, must lie in one folder.

    Args:
        paths: photos and folders, searched below.
        target: the set to make; refused if it exists.
        settings: what to take.
        pixels: cut patches; otherwise hold photos and frames, to cut when drawn.
        progress: told what is being done.

    Raises:
        DoapError: if no photo gave anything, or another build of this set is at work.
    """
    if target.exists():
        raise DoapError(f"{target}: exists already; remove it or choose another name")
    photos = _name_photos(paths)
    work = make_folder(target.absolute().parent / f".{target.name}.building")
    try:
        with FileLock(work / "lock", timeout=0):
            return _build(photos, target, work, settings, pixels, progress)
    except Timeout as error:
        raise DoapError(f"{target}: another build of this set is at work ({work})") from error


def _build(
    photos: list[Photo], target: Path, work: Path, settings: BuildSettings, pixels: bool, progress: Progress
) -> Built:
    left_out: list[str] = []
    plan = _plan(photos, work, settings, left_out, progress)
    given = _find_scenes(plan, work, settings, left_out, progress)
    if not given:
        raise DoapError(f"no photo gave a group: {'; '.join(left_out[:3])}{' …' if len(left_out) > 3 else ''}")
    progress("writing", 0, 1)
    frames = assemble(given, settings)
    if pixels:
        with write_patch_set(target, SIZE, frames.sequence_names, frames.extent) as writer:
            append_cuts(frames, writer, VIEWS, settings.seed, lambda done, total: progress("cutting", done, total))
            write_summary(writer.folder, frames, given, left_out)
    else:
        with atomic_folder(target) as folder:
            frames.write(folder)
            write_summary(folder, frames, given, left_out)
    shutil.rmtree(work, ignore_errors=True)
    return Built(given, left_out)


def _plan(
    photos: list[Photo], work: Path, settings: BuildSettings, left_out: list[str], progress: Progress
) -> list[tuple[str, Belonging, list[Photo]]]:
    """What belongs together, folder by folder."""
    plan: list[tuple[str, Belonging, list[Photo]]] = []
    done = 0
    for _, some in groupby(photos, key=lambda photo: photo.path.parent):
        folder = list(some)
        plan += _plan_folder(folder, work, settings, left_out, _sorting(progress, done, len(photos)))
        done += len(folder)
        progress("sorting photos", done, len(photos))
    return plan


def _sorting(progress: Progress, before: int, total: int) -> Callable[[], None]:
    """What to call twice for each photo of a folder: when it is read, and when it is compared."""
    steps = count(1)
    return lambda: progress("sorting photos", before + next(steps) // 2, total)


def _find_scenes(
    plan: list[tuple[str, Belonging, list[Photo]]],
    work: Path,
    settings: BuildSettings,
    left_out: list[str],
    progress: Progress,
) -> list[Scene]:
    """What the photos give, scene by scene; those that give nothing are added to `left_out`."""
    total, done = sum(len(photos) for _, _, photos in plan), 0
    scenes = []
    for name, belonging, photos in plan:
        found = _kept_frames(belonging, photos, work, settings)
        if found is None:
            left_out.append(_why_nothing(photos))
        else:
            scenes.append(Scene(name, photos, found))
        done += len(photos)
        progress("finding frames", done, total)
    return scenes


def _name_photos(paths: Sequence[Path]) -> list[Photo]:
    """Photos in the order of their folders, named by the path below what was asked for."""
    found: dict[Path, Photo] = {}
    for root in paths:
        for path in find_photos([root]):
            name = f"{root.resolve().name}/{path.relative_to(root).as_posix()}" if root.is_dir() else path.name
            found.setdefault(path.resolve(), Photo(path, name))
    return sorted(found.values(), key=lambda photo: (str(photo.path.parent), photo.path.name))


def _plan_folder(
    folder: list[Photo], work: Path, settings: BuildSettings, left_out: list[str], progress: Callable[[], None]
) -> Iterator[tuple[str, Belonging, list[Photo]]]:
    """What belongs together in a folder; what cannot be read, or belongs nowhere, is added to `left_out`."""
    kept = work / f"folder-{_key(folder, settings, '')}.json"
    if not kept.exists():
        readable, failures = _readable(folder)
        found = _belongings([folder[i] for i in readable], settings, progress)
        entries = [{"kind": b.kind, "photos": [readable[i] for i in b.photos]} for b in found]
        write_text(kept, json.dumps({"belongings": entries, "failures": failures}))
    about = json.loads(kept.read_text(encoding="utf-8"))
    left_out += about["failures"]
    belongings = [Belonging(**entry) for entry in about["belongings"]]
    scenes = sum(belonging.kind != "single" for belonging in belongings)
    for belonging in belongings:
        members = [folder[i] for i in belonging.photos]
        name = members[0].name
        if belonging.kind != "single" and scenes == 1:
            name = Path(name).parent.as_posix()
        yield name, belonging, members
    used = {i for belonging in belongings for i in belonging.photos}
    unused = len(folder) - len(used) - len(about["failures"])
    if unused:
        left_out.append(
            f"{unused} photos in {folder[0].path.parent}: probably of its scene, but not linked to the rest"
        )


def _belongings(photos: list[Photo], settings: BuildSettings, progress: Callable[[], None]) -> list[Belonging]:
    return group_photos(len(photos), lambda i: read_photo(photos[i], settings), progress) if photos else []


def _readable(folder: list[Photo]) -> tuple[list[int], list[str]]:
    readable, failures = [], []
    for number, photo in enumerate(folder):
        try:
            read_grey(photo.path)
            readable.append(number)
        except DoapError as error:
            failures.append(str(error))
    return readable, failures


def _kept_frames(belonging: Belonging, photos: list[Photo], work: Path, settings: BuildSettings) -> SceneFrames | None:
    kept = work / f"scene-{_key(photos, settings, belonging.kind)}.npz"
    if kept.exists():
        return _load(kept)
    found = _find_frames(belonging, [read_photo(photo, settings) for photo in photos], settings)
    with atomic_file(kept) as temporary, temporary.open("wb") as file:
        np.savez(file, **({} if found is None else asdict(found)))
    return found


def _find_frames(belonging: Belonging, images: list[Grey], settings: BuildSettings) -> SceneFrames | None:
    found = None
    if belonging.kind == "still" and settings.fixed:
        found = static_view(images, settings.points, settings.extent)
    elif belonging.kind == "overlapping" and settings.tracks:
        found = tracked_scene(images, settings.seed)
    if found is None and settings.views:
        # One photo only: the same point in two photos of a scene would be two groups, and each other's negatives.
        chosen = int(np.argmax([image.std() for image in images]))
        found = views_of(images[chosen], settings.points, chosen)
    return found


def _load(kept: Path) -> SceneFrames | None:
    with np.load(kept, allow_pickle=False) as content:
        if not content.files:
            return None
        arrays = {name: content[name] for name in content.files}
    return SceneFrames(**{**arrays, "source": str(arrays["source"]), "note": str(arrays["note"])})


def _why_nothing(photos: list[Photo]) -> str:
    few = f"fewer than {MIN_GROUPS} distinct keypoints found"
    if len(photos) == 1:
        return f"{photos[0].path}: {few}; is it flat or tiny?"
    return f"{photos[0].path.parent}: {few} in {len(photos)} photos"


def _key(photos: list[Photo], settings: BuildSettings, kind: str) -> str:
    """A name for what these photos give under these settings."""
    states = [photo.path.stat() for photo in photos]
    about = [(p.name, str(p.path.resolve()), s.st_size, s.st_mtime_ns) for p, s in zip(photos, states, strict=True)]
    return hashlib.sha256(json.dumps([VERSION, kind, asdict(settings), about]).encode()).hexdigest()[:24]
