import numpy as np
import pytest
import torch

from doap.geometry.ellipses import scales
from doap.images.detectors import detect_dog, detect_harris_affine, detect_hessian_affine
from doap.images.jitter import LEVELS, jitter_frames
from doap.images.selection import overlapping_pairs, spread, without_duplicates
from support.counted_overlap import counted_overlap


@pytest.fixture(scope="module")
def pooled(photo: np.ndarray) -> np.ndarray:
    return np.concatenate([detect(photo, 400) for detect in (detect_dog, detect_harris_affine, detect_hessian_affine)])


def circles(*rows: tuple[float, float, float]) -> np.ndarray:
    return np.array([[[r, 0, x], [0, r, y]] for x, y, r in rows], np.float32)


def test_overlapping_pairs_are_those_of_the_grid_count(pooled: np.ndarray) -> None:
    jittered = jitter_frames(torch.from_numpy(pooled[::8]), LEVELS["tough"], torch.Generator().manual_seed(0))
    frames = np.concatenate([pooled[::8], jittered.numpy()])
    i, j = np.triu_indices(len(frames), 1)
    away = np.linalg.norm(frames[i, :, 2] - frames[j, :, 2], axis=1)
    close = away < 3 * np.minimum(scales(frames)[i], scales(frames)[j])
    i, j = i[close], j[close]
    counted = counted_overlap(frames[i], frames[j], 96)
    found = set(zip(*(a.tolist() for a in overlapping_pairs(frames)), strict=True))
    assert len(found) > 30
    assert {(a, b) for a, b, o in zip(i.tolist(), j.tolist(), counted, strict=True) if o > 0.515} <= found
    assert found <= {(a, b) for a, b, o in zip(i.tolist(), j.tolist(), counted, strict=True) if o > 0.485}


def test_of_duplicates_the_first_is_kept() -> None:
    """The second overlaps the first, the third the second only: it stays, since the second is gone."""
    frames = circles((50, 50, 10), (54, 50, 10), (58, 50, 10), (50, 50, 15), (50, 50, 4), (120, 50, 10))
    assert without_duplicates(frames).tolist() == [0, 2, 3, 4, 5]
    assert without_duplicates(frames[::-1]).tolist() == [0, 1, 2, 3, 5]
    assert without_duplicates(frames[:0]).tolist() == []
    assert without_duplicates(np.repeat(frames[:1], 5, 0)).tolist() == [0]


def test_portions_change_nothing(pooled: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = without_duplicates(pooled)
    monkeypatch.setattr("doap.images.selection.PAIRS_AT_ONCE", 100)
    np.testing.assert_array_equal(without_duplicates(pooled), whole)


def test_what_fits_is_all_taken(pooled: np.ndarray) -> None:
    kept = pooled[without_duplicates(pooled)]
    np.testing.assert_array_equal(spread(pooled, len(kept), (512, 512)), kept)
    assert len(spread(pooled, 100, (512, 512))) == 100
    assert len(spread(pooled[:0], 100, (512, 512))) == 0


def test_a_dense_corner_does_not_take_all_places() -> None:
    """800 strong frames in one sixteenth of the picture, then 200 weak ones over all of it."""
    random = np.random.default_rng(0)
    dense = random.uniform(0, 128, (800, 2)), random.uniform(0, 512, (200, 2))
    frames = circles(*((x, y, 1.5) for x, y in np.concatenate(dense)))
    chosen = spread(frames, 300, (512, 512))
    outside = (chosen[:, :, 2] > 128).any(1)
    assert outside.sum() > 100
    assert (~outside).sum() > 100
    # and the strongest of the dense corner are among them
    assert np.mean(np.isin(frames[:10, 0, 2], chosen[:, 0, 2])) > 0.5


def test_large_frames_are_represented() -> None:
    random = np.random.default_rng(0)
    small = [(x, y, 1.5) for x, y in random.uniform(0, 1000, (2000, 2))]
    large = [(x, y, 20.0) for x, y in random.uniform(0, 1000, (60, 2))]
    frames = circles(*small, *large)
    chosen = spread(frames, 200, (1000, 1000))
    assert 20 <= (scales(chosen) > 10).sum() <= 60


def test_the_order_given_is_kept(pooled: np.ndarray) -> None:
    chosen = spread(pooled, 200, (512, 512))
    place = {frame.tobytes(): number for number, frame in reversed(list(enumerate(pooled)))}
    assert (np.diff([place[frame.tobytes()] for frame in chosen]) > 0).all()
    np.testing.assert_array_equal(chosen, spread(pooled, 200, (512, 512)))
