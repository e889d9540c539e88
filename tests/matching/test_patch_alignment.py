"""Alignment of patches: known shifts are found, and what cannot be aligned is told."""

import cv2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.matching.patch_alignment import MARGIN, MAX_SHIFT, align_patches

SIZE = 32


def textures(shifts: NDArray[np.floating], seed: int = 0) -> Tensor:
    """Return patches of random smooth textures, (N, 32, 32), evaluated exactly at shifted positions."""
    random = np.random.default_rng(seed)
    count = len(shifts)
    frequencies = random.uniform(-0.15, 0.15, (count, 12, 2))  # cycles per pixel
    phases, amplitudes = random.uniform(0, 1, (count, 12)), random.uniform(5, 15, (count, 12))
    y, x = np.mgrid[:SIZE, :SIZE]
    points = np.stack([x, y], -1) - shifts[:, None, None]
    waves = np.cos(2 * np.pi * (np.einsum("nhwi,nki->nhwk", points, frequencies) + phases[:, None, None]))
    return torch.from_numpy(128 + np.einsum("nhwk,nk->nhw", waves, amplitudes))


@pytest.fixture
def shifts() -> NDArray[np.float64]:
    """Shifts of up to two pixels."""
    return np.random.default_rng(1).uniform(-2, 2, (200, 2))


def test_known_shifts_are_found(shifts: NDArray[np.float64]) -> None:
    result = align_patches(textures(0 * shifts), textures(shifts))
    right = result.converged & (result.similarities > 0.99)
    assert right.float().mean() > 0.95
    errors = (result.shifts - torch.from_numpy(shifts)).norm(dim=1)[right]
    assert errors.median() < 0.03  # of bilinear interpolation
    assert errors.max() < 0.1


def test_bytes_are_accurate_enough(shifts: NDArray[np.float64]) -> None:
    first, second = (textures(s).round().clamp(0, 255).to(torch.uint8) for s in (0 * shifts, shifts))
    result = align_patches(first, second)
    errors = (result.shifts - torch.from_numpy(shifts)).norm(dim=1)[result.similarities > 0.99]
    assert len(errors) > 190
    assert errors.median() < 0.03


def test_the_order_changes_the_sign_only(shifts: NDArray[np.float64]) -> None:
    first, second = textures(0 * shifts), textures(shifts)
    forward, backward = align_patches(first, second), align_patches(second, first)
    torch.testing.assert_close(forward.shifts, -backward.shifts, atol=1e-4, rtol=0)
    torch.testing.assert_close(forward.similarities, backward.similarities, atol=1e-4, rtol=0)


def test_brightness_and_contrast_do_not_matter(shifts: NDArray[np.float64]) -> None:
    first, second = textures(0 * shifts), textures(shifts)
    expected, result = align_patches(first, second), align_patches(first, 0.5 * second + 20)
    torch.testing.assert_close(result.shifts, expected.shifts, atol=1e-3, rtol=0)


def test_the_sum_of_squares_is_smallest_at_the_shift(shifts: NDArray[np.float64]) -> None:
    """Of the shifts around the result, computed with OpenCV's interpolation."""
    first, second = textures(0 * shifts[:20]).float(), textures(shifts[:20]).float()
    result = align_patches(first, second)
    side = SIZE - 2 * MARGIN
    kernel = cv2.getGaussianKernel(side, side / 4)
    window = kernel @ kernel.T

    def windowed(patch: Tensor, shift: NDArray[np.floating]) -> NDArray[np.float64]:
        centre = (SIZE / 2 - 0.5 + shift[0], SIZE / 2 - 0.5 + shift[1])
        values = cv2.getRectSubPix(patch.numpy(), (side, side), centre).astype(float)
        values -= (window * values).sum()
        return np.asarray(values / np.sqrt((window * values**2).sum()))

    for a, b, shift in zip(first, second, result.shifts.numpy(), strict=True):
        costs = {
            step: (window * (windowed(a, -(shift + step) / 2) - windowed(b, (shift + step) / 2)) ** 2).sum()
            for step in [(0.0, 0.0), (0.3, 0.0), (-0.3, 0.0), (0.0, 0.3), (0.0, -0.3)]
        }
        assert min(costs, key=lambda step: costs[step]) == (0.0, 0.0)


def test_other_textures_are_not_similar(shifts: NDArray[np.float64]) -> None:
    result = align_patches(textures(0 * shifts), textures(0 * shifts, seed=5))
    assert result.similarities.median() < 0.6
    assert result.shifts.abs().max() <= MAX_SHIFT


def test_patches_without_texture_are_not_similar() -> None:
    flat = torch.full((3, SIZE, SIZE), 7, dtype=torch.uint8)
    result = align_patches(flat, textures(np.zeros((3, 2))))
    assert result.similarities.abs().max() < 1e-3
    assert result.shifts.isfinite().all()
    assert align_patches(flat[:0], flat[:0]).shifts.shape == (0, 2)


def test_chunks_do_not_matter(shifts: NDArray[np.float64], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = textures(0 * shifts), textures(shifts)
    expected = align_patches(first, second)
    monkeypatch.setattr("doap.matching.patch_alignment.CHUNK_SIZE", 7)
    torch.testing.assert_close(align_patches(first, second).shifts, expected.shifts, atol=1e-5, rtol=0)
