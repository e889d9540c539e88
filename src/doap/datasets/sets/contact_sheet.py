"""Contact sheets: what is in a set, one group a row."""

import tempfile
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from doap.datasets.build.cutting import cut_patches
from doap.datasets.sets.frame_set import FrameSet
from doap.datasets.sets.groups import Ids
from doap.datasets.sets.patch_set import PatchSet
from doap.errors import DoapError
from doap.files import atomic_file

MOST_ACROSS = 16
CELL = 64  # about the side at which a patch is shown
GAP = 6
MARGIN = 16
LABEL = 210
PAPER, INK, FAINT = 255, 30, 125


class Groups(Protocol):
    """What can be drawn: a patch set, and whatever else gives patches in groups in sequences."""

    groups: Ids
    sequence_names: list[str]

    @property
    def members(self) -> Ids:
        """See `Grouping`."""

    @property
    def members_start(self) -> Ids:
        """See `Grouping`."""

    @property
    def group_sequences(self) -> Ids:
        """See `Grouping`."""

    def take(self, indices: Ids) -> NDArray[np.uint8]:
        """The patches at `indices`, (n, S, S) uint8."""


def draw_sheet(patch_set: Groups, path: Path, groups: int, seed: int) -> None:
    """Draw some groups of a set, a row each with its sequence and number, and write the picture atomically.

    Args:
        patch_set: where to draw from.
        path: of the picture; its suffix chooses the format.
        groups: rows, drawn at random without repeating one, in the order of the set.
        seed: fixes which.
    """
    count = len(patch_set.members_start) - 1
    chosen = np.sort(np.random.default_rng(seed).permutation(count)[:groups])
    rows = [_members(patch_set, int(group)) for group in chosen]
    patches = [_magnify(patch_set.take(members)) for members, _ in rows]
    cell = patches[0].shape[1] + GAP
    across = max(map(len, patches))
    sheet = Image.new("L", (2 * MARGIN + LABEL + across * cell - GAP, 2 * MARGIN + len(rows) * cell - GAP), PAPER)
    pen = ImageDraw.Draw(sheet)
    for row, (group, shown) in enumerate(zip(chosen, patches, strict=True)):
        top = MARGIN + row * cell
        _label(pen, top + (cell - GAP) // 2, _name(patch_set, int(group)), _number(patch_set, *rows[row]))
        for column, patch in enumerate(shown):
            sheet.paste(Image.fromarray(patch), (MARGIN + LABEL + column * cell, top))
    _write(sheet, path)


def draw_frames_sheet(frames: FrameSet, path: Path, groups: int, seed: int) -> None:
    """`draw_sheet` of a frame set: some of its groups are cut, small ones with jittered views."""
    starts = frames.members_start[:-1]
    chosen = np.random.default_rng(seed).permutation(len(starts))[:groups]
    wanted = np.isin(frames.groups, frames.groups[frames.members[starts[chosen]]])
    with tempfile.TemporaryDirectory() as folder:
        cut_patches(frames.part(wanted), Path(folder) / "set")
        draw_sheet(PatchSet.open(Path(folder) / "set"), path, groups, seed)


def _members(patch_set: Groups, group: int) -> tuple[Ids, int]:
    """At most a row of the patches of a group, evenly spread, and how many it has."""
    start, end = patch_set.members_start[group : group + 2]
    places = np.linspace(start, end - 1, min(int(end - start), MOST_ACROSS)).round().astype(np.int64)
    return patch_set.members[places], int(end - start)


def _magnify(patches: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Whole pixels only: a sheet shows what a network sees."""
    factor = max(1, round(CELL / patches.shape[1]))
    return patches.repeat(factor, axis=1).repeat(factor, axis=2)


def _name(patch_set: Groups, group: int) -> str:
    sequence = int(patch_set.group_sequences[group])
    return Path(patch_set.sequence_names[sequence]).name if patch_set.sequence_names else f"sequence {sequence}"


def _number(patch_set: Groups, members: Ids, size: int) -> str:
    counted = f"{size} patches" if size == len(members) else f"{len(members)} of {size} patches"
    return f"group {patch_set.groups[members[0]]}, {counted}"


def _label(pen: ImageDraw.ImageDraw, middle: int, name: str, number: str) -> None:
    large, small = ImageFont.load_default(15), ImageFont.load_default(12)
    width = LABEL - 2 * GAP
    if pen.textlength(name, large) > width:
        while pen.textlength(f"{name}…", large) > width:
            name = name[:-1]
        name = f"{name}…"
    pen.text((MARGIN, middle - 2), name, fill=INK, font=large, anchor="ls")
    pen.text((MARGIN, middle + 15), number, fill=FAINT, font=small, anchor="ls")


def _write(sheet: Image.Image, path: Path) -> None:
    if path.suffix.lower() not in Image.registered_extensions():
        raise DoapError(f"{path}: no picture format has this ending; try .png")
    with atomic_file(path) as temporary:
        try:
            sheet.save(temporary)
        except (ValueError, OSError, KeyError) as error:  # a format that can be read alone, or too small for the sheet
            raise DoapError(f"{path}: cannot be written ({error}); try .png, or fewer groups") from error
