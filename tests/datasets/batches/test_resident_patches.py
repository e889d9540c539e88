from pathlib import Path

import numpy as np
import pytest
import torch

from doap import PatchSet
from doap.datasets.batches import resident_patches as resident
from doap.datasets.batches.resident_patches import ResidentPatches, area_weights


@pytest.fixture
def saved(tmp_path: Path) -> PatchSet:
    pixels = np.random.default_rng(0).integers(0, 256, (300, 9, 9), dtype=np.uint8)
    PatchSet([pixels], np.arange(300) // 3).save(tmp_path / "set")
    return PatchSet.open(tmp_path / "set")


@pytest.mark.parametrize("limit", [None, 0])
def test_patches_are_those_of_the_set(
    saved: PatchSet, device: str, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident, "CHUNK_SIZE", 64)
    loaded: list[tuple[int, int]] = []
    patches = ResidentPatches(saved, device, limit=limit, progress=lambda *done: loaded.append(done))
    assert loaded == ([(64, 300), (128, 300), (192, 300), (256, 300), (300, 300)] if limit is None else [])
    indices = np.random.default_rng(1).integers(0, 300, 500)
    taken = patches.take(indices)
    assert taken.device.type == device
    assert taken.dtype == torch.uint8
    np.testing.assert_array_equal(taken.cpu().numpy(), saved.take(indices))


def area_average(patch: np.ndarray, size: int) -> np.ndarray:
    """Average by brute force, in pixels so fine that new and old pixels consist of whole numbers of them."""
    fine = np.kron(patch.astype(float), np.ones((size, size)))
    return np.asarray(fine.reshape(size, len(patch), size, len(patch)).mean((1, 3)))


@pytest.mark.parametrize("limit", [None, 0])
@pytest.mark.parametrize("size", [4, 3])
def test_resizing_averages_areas(saved: PatchSet, device: str, limit: int | None, size: int) -> None:
    patches = ResidentPatches(saved, device, size, limit)
    taken = patches.take(np.arange(20)).cpu().numpy()
    assert taken.shape == (20, size, size)
    expected = np.stack([area_average(p, size) for p in saved.take(np.arange(20))])
    assert np.abs(taken - expected).max() < 0.501


@pytest.mark.parametrize(("limit", "is_loaded"), [(300 * 16, True), (300 * 16 - 1, False)])
def test_the_limit_is_in_bytes_after_resizing(saved: PatchSet, limit: int, is_loaded: bool) -> None:
    loaded: list[tuple[int, int]] = []
    ResidentPatches(saved, size=4, limit=limit, progress=lambda *done: loaded.append(done))
    assert loaded == ([(300, 300)] if is_loaded else [])


def test_weights_sum_to_one() -> None:
    weights = area_weights(65, 32)
    torch.testing.assert_close(weights.sum(1), torch.ones(32))
    torch.testing.assert_close(weights.sum(0), torch.full((65,), 32 / 65))
