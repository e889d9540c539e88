"""Contact sheets: images of some groups of a set, one group per row."""

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from doap.datasets.build.cutting import cut_patches
from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.groups import Ids
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError, inflect
from doap.files import atomic_file
from doap.images.fonts import font_for, join_accents

MAX_COLUMNS = 16
CELL = 64  # approximate side of a rendered patch in pixels
GAP = 6
MARGIN = 16
LABEL = 210
BACKGROUND, TEXT, FAINT_TEXT = 255, 30, 125


def draw_sheet(patches: PatchSet, path: Path, groups: int, seed: int) -> None:
    """Draw some groups of a set, one per row, with the sequence and id of each. The file is written atomically.

    Args:
        patches: Set to sample from.
        path: Image to write; its suffix selects the format.
        groups: Number of rows; groups are sampled without replacement and drawn in the order of the set.
        seed: Seed of the sample.
    """
    count = len(patches.members_start) - 1
    sample = np.sort(np.random.default_rng(seed).permutation(count)[:groups])
    rows = [_members(patches, int(group)) for group in sample]
    rendered = [_magnify(patches.take(members)) for members, _ in rows]
    cell = rendered[0].shape[1] + GAP
    columns = max(map(len, rendered))
    sheet = Image.new("L", (2 * MARGIN + LABEL + columns * cell - GAP, 2 * MARGIN + len(rows) * cell - GAP), BACKGROUND)
    pen = ImageDraw.Draw(sheet)
    for row, (group, images) in enumerate(zip(sample, rendered, strict=True)):
        top = MARGIN + row * cell
        _label(pen, top + (cell - GAP) // 2, _name(patches, int(group)), _group_text(patches, *rows[row]))
        for column, patch in enumerate(images):
            sheet.paste(Image.fromarray(patch), (MARGIN + LABEL + column * cell, top))
    _write(sheet, path)


def draw_frames_sheet(frames: FrameSet, path: Path, groups: int, seed: int) -> None:
    """Cut the patches of some groups of a frame set, and draw them with `draw_sheet`.

    Small groups are filled up with jittered views.
    """
    starts = frames.members_start[:-1]
    sample = np.random.default_rng(seed).permutation(len(starts))[:groups]
    mask = np.isin(frames.groups, frames.groups[frames.members[starts[sample]]])
    with tempfile.TemporaryDirectory() as folder:
        cut_patches(frames.select(mask), Path(folder) / "set")
        draw_sheet(PatchSet.open(Path(folder) / "set"), path, groups, seed)


def _members(patches: PatchSet, group: int) -> tuple[Ids, int]:
    """Return the indices of at most MAX_COLUMNS evenly spaced patches of a group, and the size of the group."""
    start, end = patches.members_start[group : group + 2]
    sample = np.linspace(start, end - 1, min(int(end - start), MAX_COLUMNS)).round().astype(np.int64)
    return patches.members[sample], int(end - start)


def _magnify(patches: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Enlarge patches by an integer factor, without interpolation, to about CELL pixels."""
    factor = max(1, round(CELL / patches.shape[1]))
    return patches.repeat(factor, axis=1).repeat(factor, axis=2)


def _name(patches: PatchSet, group: int) -> str:
    sequence = int(patches.group_sequences[group])
    return Path(patches.sequence_names[sequence]).name if patches.sequence_names else f"sequence {sequence}"


def _group_text(patches: PatchSet, members: Ids, size: int) -> str:
    shown = "" if size == len(members) else f"{len(members)} of "
    return f"group {patches.groups[members[0]]}, {shown}{size} {inflect(size, 'patch', 'patches')}"


def _label(pen: ImageDraw.ImageDraw, middle: int, name: str, number: str) -> None:
    name = join_accents(name)
    large, small = font_for(name, 15), font_for(number, 12)
    width = LABEL - 2 * GAP
    if pen.textlength(name, large) > width:
        while pen.textlength(f"{name}…", large) > width:
            name = name[:-1]
        name = f"{name}…"
    pen.text((MARGIN, middle - 2), name, fill=TEXT, font=large, anchor="ls")
    pen.text((MARGIN, middle + 15), number, fill=FAINT_TEXT, font=small, anchor="ls")


def _write(sheet: Image.Image, path: Path) -> None:
    if path.suffix.lower() not in Image.registered_extensions():
        raise DoapError(f"{path}: no image format has this suffix; try .png")
    with atomic_file(path) as temporary:
        try:
            sheet.save(temporary)
        except (ValueError, OSError, KeyError) as error:  # a read-only format, or one with a size limit
            raise DoapError(f"{path}: cannot be written ({error}); try .png, or fewer groups") from error
