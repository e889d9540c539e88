from pathlib import Path

import numpy as np
import pytest

from doap import PatchSet
from doap.datasets.build.cutting import cut_items, cut_patches
from doap.datasets.sets.frame_set import FrameSet, encode
from doap.images.extraction import extract_patches
from doap.images.frames import detect_dog


@pytest.fixture
def frames(photo: np.ndarray) -> FrameSet:
    """Return groups of one, two and six frames in two photos; the second is the first, shifted by 40 pixels."""
    shifted = photo[:, 40:]
    detected = detect_dog(photo, 200)
    first = detected[detected[:, 0, 2] > 100][:30]
    second = first - np.array([[0, 0, 40], [0, 0, 0]], np.float32)
    groups = np.concatenate([np.arange(30), np.arange(10), np.repeat(np.arange(5), 4)])
    geometry = np.concatenate([first, second[:10], np.repeat(second[:5], 4, axis=0)])
    photos = np.concatenate([np.zeros(30, int), np.ones(30, int)])
    sources = np.where(groups < 10, 2, 0)
    return FrameSet(
        [encode(photo), encode(shifted)], ["left", "right"], photos, geometry, groups, np.zeros(60, int), sources,
        ["scene"], np.array([[0, 3], [1, 7]]),
    )  # fmt: skip


def test_groups_are_extracted_and_filled_up(frames: FrameSet, photo: np.ndarray, tmp_path: Path) -> None:
    cut_patches(frames, tmp_path / "set")
    cut = PatchSet.open(tmp_path / "set")
    sizes = np.diff(cut.members_start)
    np.testing.assert_array_equal(sizes, [6] * 5 + [4] * 25)
    levels = [
        cut.labels["level"][cut.members[s:e]] for s, e in zip(cut.members_start, cut.members_start[1:], strict=False)
    ]
    assert [sorted(level.tolist()) for level in levels] == [[0] * 6] * 5 + [[0, 0, 1, 2]] * 5 + [[0, 1, 2, 3]] * 20
    assert cut.frames is not None
    for number, image in enumerate((photo, photo[:, 40:])):
        plain = (cut.labels["photo"] == number) & (cut.labels["level"] == 0)
        own = extract_patches(image, cut.frames[plain], 32, 12.0)
        np.testing.assert_array_equal(cut.take(np.flatnonzero(plain)), own)
    assert (cut.labels["source"][cut.groups < 10] == 2).all()
    assert (cut.photo_names, cut.sequence_names) == (["left", "right"], ["scene"])
    np.testing.assert_array_equal(cut.overlaps, frames.overlaps)


def test_the_two_photos_of_a_group_show_the_same(frames: FrameSet, tmp_path: Path) -> None:
    cut_patches(frames, tmp_path / "set", size=24)
    cut = PatchSet.open(tmp_path / "set")
    plain = cut.labels["level"] == 0
    for group in range(10):
        pair = [np.flatnonzero(plain & (cut.groups == group) & (cut.labels["photo"] == n))[0] for n in (0, 1)]
        # Both photos have the same pixels, except for the replicated border.
        difference = np.abs(np.subtract(*cut.take(pair).astype(int)))
        assert np.median(difference) <= 1


def test_the_seed_fixes_the_views(frames: FrameSet, tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        cut_patches(frames, tmp_path / name, seed=seed)
    a, b, c = (PatchSet.open(tmp_path / name).take(range(130)) for name in "abc")
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()


def test_some_frames_are_cut_in_any_order(frames: FrameSet, photo: np.ndarray) -> None:
    items = np.array([45, 3, 30, 3])
    calls: list[tuple[int, int]] = []
    cut = cut_items(frames, items, np.array([0, 0, 0, 2]), 24, 0, lambda *done: calls.append(done))
    for row, image in ((0, photo[:, 40:]), (1, photo), (2, photo[:, 40:])):
        np.testing.assert_array_equal(cut[row], extract_patches(image, frames.frames[items[[row]]], 24, 12.0)[0])
    assert not np.array_equal(cut[3], cut[1])
    assert calls == [(1, 2), (2, 2)]
    np.testing.assert_array_equal(cut, cut_items(frames, items, np.array([0, 0, 0, 2]), 24, 0))
