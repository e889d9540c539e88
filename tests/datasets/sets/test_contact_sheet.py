from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from doap import DoapError, PatchSet
from doap.datasets.sets.contact_sheet import CELL, GAP, LABEL, MARGIN, draw_sheet


def numbered_set(sizes: list[int], side: int = 32) -> PatchSet:
    """Return groups of these sizes; every pixel of patch i is i, and patches of a group are not contiguous."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    order = np.random.default_rng(0).permutation(len(groups))
    patches = np.broadcast_to(np.arange(len(groups), dtype=np.uint8)[:, None, None], (len(groups), side, side))
    return PatchSet([patches.copy()], groups[order] * 5, sequence_names=["a sequence with a name too long to be shown"])


def cells(path: Path, rows: int, columns: int, side: int = CELL) -> NDArray[np.int64]:
    """Return the value of each cell of a sheet; all pixels of a cell must have the same value."""
    sheet = np.asarray(Image.open(path))
    assert sheet.shape[0] == 2 * MARGIN + rows * (side + GAP) - GAP
    assert sheet.shape[1] == 2 * MARGIN + LABEL + columns * (side + GAP) - GAP
    values = np.zeros((rows, columns), np.int64)
    for row in range(rows):
        for column in range(columns):
            top, left = MARGIN + row * (side + GAP), MARGIN + LABEL + column * (side + GAP)
            cell = sheet[top : top + side, left : left + side]
            assert (cell == cell[0, 0]).all()
            values[row, column] = cell[0, 0]
    return values


def test_a_row_shows_a_group(tmp_path: Path) -> None:
    made = numbered_set([3, 2, 4])
    draw_sheet(made, tmp_path / "sheet.png", groups=10, seed=0)
    values = cells(tmp_path / "sheet.png", rows=3, columns=4)
    for row, group in enumerate([0, 5, 10]):
        members = np.flatnonzero(made.groups == group)
        assert values[row].tolist() == [*members, *[255] * (4 - len(members))]


def test_each_row_is_labelled(tmp_path: Path) -> None:
    draw_sheet(numbered_set([3, 2]), tmp_path / "sheet.png", groups=2, seed=0)
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    for row in range(2):
        beside = sheet[MARGIN + row * (CELL + GAP) :][:CELL, MARGIN : MARGIN + LABEL - GAP]
        assert 0.02 < (beside < 200).mean() < 0.4
    assert (sheet[:, MARGIN + LABEL - GAP : MARGIN + LABEL] == 255).all()  # the long name ends before the patches


def test_labels_have_letters_beyond_ascii(tmp_path: Path) -> None:
    sheets = []
    for name in ("schräg", "schra\u0308g", "schrög"):
        made = PatchSet([np.zeros((2, 32, 32), np.uint8)], np.zeros(2, np.int64), sequence_names=[name])
        draw_sheet(made, tmp_path / "sheet.png", groups=1, seed=0)
        sheets.append(np.asarray(Image.open(tmp_path / "sheet.png")))
    np.testing.assert_array_equal(sheets[0], sheets[1])
    assert (sheets[0] != sheets[2]).any()


def test_a_large_group_is_sampled_evenly(tmp_path: Path) -> None:
    made = numbered_set([46])
    draw_sheet(made, tmp_path / "sheet.png", groups=1, seed=0)
    values = cells(tmp_path / "sheet.png", rows=1, columns=16)
    assert values[0].tolist() == list(range(0, 46, 3))


@pytest.mark.parametrize(("side", "rendered_side"), [(8, 64), (51, 51), (64, 64), (65, 65), (120, 120)])
def test_patches_are_magnified_by_whole_numbers(tmp_path: Path, side: int, rendered_side: int) -> None:
    draw_sheet(numbered_set([2], side), tmp_path / "sheet.png", groups=1, seed=0)
    cells(tmp_path / "sheet.png", rows=1, columns=2, side=rendered_side)


def test_the_seed_decides_which_groups(tmp_path: Path) -> None:
    made = numbered_set([2] * 100)
    sheets = []
    for name, seed in [("a", 0), ("b", 0), ("c", 1)]:
        draw_sheet(made, tmp_path / f"{name}.png", groups=5, seed=seed)
        sheets.append(cells(tmp_path / f"{name}.png", rows=5, columns=2))
    assert (sheets[0] == sheets[1]).all()
    assert (sheets[0] != sheets[2]).any()
    assert len({made.groups[p] for p in sheets[0][:, 0]}) == 5


@pytest.mark.parametrize("name", ["sheet", "sheet.xyz", "sheet.psd"])
def test_a_suffix_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(DoapError, match=rf"{name}: .* try \.png") as caught:
        draw_sheet(numbered_set([2]), tmp_path / name, groups=1, seed=0)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
