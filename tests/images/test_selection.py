import numpy as np
import pytest
import torch

from doap.geometry.ellipses import scales
from doap.images.detectors import detect_harris_affine, detect_hessian_affine
from doap.images.frames import detect_dog
from doap.images.jitter.views import LEVELS, jitter_frames
from doap.images.selection import find_overlapping_pairs, select_frames, suppress_duplicates
from doap.types import Frames, Grey
from support.counted_overlap import counted_overlap


@pytest.fixture(scope="module")
def pooled(photo: Grey) -> Frames:
    return np.concatenate([detect(photo, 400) for detect in (detect_dog, detect_harris_affine, detect_hessian_affine)])


def circles(*rows: tuple[float, float, float]) -> Frames:
    return np.array([[[r, 0, x], [0, r, y]] for x, y, r in rows], np.float32)


def test_overlapping_pairs_are_those_of_the_grid_count(pooled: Frames) -> None:
    jittered = jitter_frames(torch.from_numpy(pooled[::8]), LEVELS["tough"], torch.Generator().manual_seed(0))
    frames = np.concatenate([pooled[::8], jittered.numpy()])
    i, j = np.triu_indices(len(frames), 1)
    distance = np.linalg.norm(frames[i, :, 2] - frames[j, :, 2], axis=1)
    close = distance < 3 * np.minimum(scales(frames)[i], scales(frames)[j])
    i, j = i[close], j[close]
    counted = counted_overlap(frames[i], frames[j], 96)
    actual = set(zip(*(a.tolist() for a in find_overlapping_pairs(frames)), strict=True))
    assert len(actual) > 30
    assert {(a, b) for a, b, o in zip(i.tolist(), j.tolist(), counted, strict=True) if o > 0.515} <= actual
    assert actual <= {(a, b) for a, b, o in zip(i.tolist(), j.tolist(), counted, strict=True) if o > 0.485}


def test_of_duplicates_the_first_is_retained() -> None:
    """The second overlaps the first, the third the second only: it stays, since the second is gone."""
    frames = circles((50, 50, 10), (54, 50, 10), (58, 50, 10), (50, 50, 15), (50, 50, 4), (120, 50, 10))
    assert suppress_duplicates(frames).tolist() == [0, 2, 3, 4, 5]
    assert suppress_duplicates(frames[::-1]).tolist() == [0, 1, 2, 3, 5]
    assert suppress_duplicates(frames[:0]).tolist() == []
    assert suppress_duplicates(np.repeat(frames[:1], 5, 0)).tolist() == [0]


def test_blocks_change_nothing(pooled: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = suppress_duplicates(pooled)
    monkeypatch.setattr("doap.images.selection.BLOCK_PAIRS", 100)
    np.testing.assert_array_equal(suppress_duplicates(pooled), whole)


def test_what_fits_is_all_taken(pooled: Frames) -> None:
    distinct = pooled[suppress_duplicates(pooled)]
    np.testing.assert_array_equal(select_frames(pooled, len(distinct), (512, 512)), distinct)
    assert len(select_frames(pooled, 100, (512, 512))) == 100
    assert len(select_frames(pooled[:0], 100, (512, 512))) == 0


def test_a_dense_corner_does_not_take_all_frames() -> None:
    """800 strong frames in one sixteenth of the image, then 200 weak ones over all of it."""
    random = np.random.default_rng(0)
    dense = random.uniform(0, 128, (800, 2)), random.uniform(0, 512, (200, 2))
    frames = circles(*((x, y, 1.5) for x, y in np.concatenate(dense)))
    selected = select_frames(frames, 300, (512, 512))
    outside = (selected[:, :, 2] > 128).any(1)
    assert outside.sum() > 100
    assert (~outside).sum() > 100
    # and the strongest of the dense corner are among them
    assert np.mean(np.isin(frames[:10, 0, 2], selected[:, 0, 2])) > 0.5


def test_large_frames_are_represented() -> None:
    random = np.random.default_rng(0)
    small = [(x, y, 1.5) for x, y in random.uniform(0, 1000, (2000, 2))]
    large = [(x, y, 20.0) for x, y in random.uniform(0, 1000, (60, 2))]
    frames = circles(*small, *large)
    selected = select_frames(frames, 200, (1000, 1000))
    assert 20 <= (scales(selected) > 10).sum() <= 60


def test_the_order_is_retained(pooled: Frames) -> None:
    selected = select_frames(pooled, 200, (512, 512))
    index = {frame.tobytes(): number for number, frame in reversed(list(enumerate(pooled)))}
    assert (np.diff([index[frame.tobytes()] for frame in selected]) > 0).all()
    np.testing.assert_array_equal(selected, select_frames(pooled, 200, (512, 512)))
