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
def test_draws_what_the_set_holds(
    saved: PatchSet, device: str, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident, "CHUNK", 64)
    loaded: list[int] = []
    patches = ResidentPatches(saved, device, limit=limit, progress=loaded.append)
    assert patches.resident == (limit is None)
    assert sum(loaded) == (300 if limit is None else 0)
    indices = np.random.default_rng(1).integers(0, 300, 500)
    drawn = patches.draw(indices)
    assert drawn.device.type == device
    assert drawn.dtype == torch.uint8
    np.testing.assert_array_equal(drawn.cpu().numpy(), saved.take(indices))


def area_average(patch: np.ndarray, size: int) -> np.ndarray:
    """By brute force: the patch in pixels so fine that new and old ones both hold whole numbers of them."""
    fine = np.kron(patch.astype(float), np.ones((size, size)))
    return fine.reshape(size, len(patch), size, len(patch)).mean((1, 3))


@pytest.mark.parametrize("limit", [None, 0])
@pytest.mark.parametrize("size", [4, 3])
def test_resizing_averages_areas(saved: PatchSet, device: str, limit: int | None, size: int) -> None:
    patches = ResidentPatches(saved, device, size, limit)
    drawn = patches.draw(np.arange(20)).cpu().numpy()
    assert drawn.shape == (20, size, size)
    expected = np.stack([area_average(p, size) for p in saved.take(np.arange(20))])
    assert np.abs(drawn - expected).max() < 0.501


def test_the_limit_is_in_bytes_after_resizing(saved: PatchSet) -> None:
    assert ResidentPatches(saved, size=4, limit=300 * 16).resident
    assert not ResidentPatches(saved, size=4, limit=300 * 16 - 1).resident


def test_weights_sum_to_one() -> None:
    weights = area_weights(65, 32)
    torch.testing.assert_close(weights.sum(1), torch.ones(32))
    torch.testing.assert_close(weights.sum(0), torch.full((65,), 32 / 65))
