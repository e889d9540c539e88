import numpy as np
import torch

from doap.images.atlas import Atlas
from doap.images.correction.cutting import cut_patches
from doap.images.extraction import extract_patches
from doap.images.frames import detect_dog
from doap.types import Grey


def test_patches_equal_extracted_ones(photo: Grey) -> None:
    frames = detect_dog(photo, 50)
    frames[:10, :, :2] = frames[:10, :, :2] @ np.array([[2.0, 0.3], [0, 0.5]], np.float32)
    cut = cut_patches(Atlas([photo]), torch.from_numpy(frames), torch.zeros(50, dtype=torch.long), 32, 12.0)
    difference = np.abs(cut[:, 0].numpy() - extract_patches(photo, frames, 32, 12.0))
    assert difference.max() <= 1.6
    assert difference.mean() < 0.5


def test_gradient_agrees_with_finite_differences_in_float64() -> None:
    random = np.random.default_rng(0)
    atlas = Atlas([random.integers(0, 256, (60, 80)).astype(np.uint8) for _ in range(2)])
    frames = torch.tensor(
        [[[1.3, 0.21, 30.2171], [-0.13, 0.9, 25.7137]], [[2.31, 0.2, 50.2191], [-0.1, 2.9, 25.7731]]],
        dtype=torch.float64,
        requires_grad=True,
    )
    weights = torch.from_numpy(random.standard_normal((2, 1, 8, 8)))

    def total(values: torch.Tensor) -> torch.Tensor:
        return (cut_patches(atlas, values, torch.tensor([1, 0]), 8, 3.0) * weights).sum()

    total(frames).backward()  # type: ignore[no-untyped-call]
    assert frames.grad is not None
    step = 1e-6
    for index in np.ndindex(2, 2, 3):
        offset = torch.zeros_like(frames)
        offset[index] = step
        with torch.no_grad():
            expected = (total(frames + offset) - total(frames - offset)) / (2 * step)
        torch.testing.assert_close(frames.grad[index], expected, atol=1e-4, rtol=1e-5)


def test_a_turned_image_gives_the_patches_of_turned_frames(photo: Grey) -> None:
    turned = np.ascontiguousarray(np.rot90(photo))  # x' = y, y' = width - 1 - x
    frames = torch.from_numpy(detect_dog(photo, 30))
    turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    moved = turn @ frames
    moved[:, 1, 2] += photo.shape[1] - 1
    zeros = torch.zeros(30, dtype=torch.long)
    # Pyramids of odd sides are cut differently: compare at the first level.
    first, second = (
        cut_patches(Atlas([image]), laf, zeros, 64, 3.0) for image, laf in ((photo, frames), (turned, moved))
    )
    fine = 2 * 3.0 * frames[:, :, :2].det().sqrt() / 64 < 1
    assert fine.sum() > 20
    assert (first - second)[fine].abs().max() < 0.6
