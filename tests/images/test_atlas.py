from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from doap.images.atlas import Atlas
from doap.images.extraction import average_samples, extract_patches, patch_grid, pixel_spacing, to_bytes
from doap.images.frames import detect_dog
from doap.images.jitter.views import tilted_grid
from doap.types import Frames, Grey

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def extract(
    atlas: Atlas, frames: Frames, images: np.ndarray, size: int, extent: float, device: str
) -> NDArray[np.uint8]:
    """Extract patches of several images from an atlas."""
    on_device = torch.from_numpy(frames).to(device)
    grid = patch_grid(size, on_device.device)
    spacing = pixel_spacing(on_device, size, extent)
    indices = torch.from_numpy(images).to(device)
    values = atlas.sample(on_device, (grid[..., 0], grid[..., 1]), extent, spacing, indices)
    return np.asarray(to_bytes(average_samples(values)).cpu().numpy())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("extent", [3.0, 12.0, 40.0])
def test_patches_of_many_images_equal_those_of_each_to_one_grey_level(photo: Grey, extent: float, device: str) -> None:
    images = [photo, photo[:301, :200], photo[100:117, 40:333], photo[:, ::-1].copy()]
    frames = [detect_dog(image, 200) for image in images]
    indices = np.concatenate([np.full(len(f), n) for n, f in enumerate(frames)])
    order = np.random.default_rng(0).permutation(len(indices))
    patches = extract(Atlas(images, device), np.concatenate(frames)[order], indices[order], 32, extent, device)
    separate = np.concatenate([extract_patches(i, f, 32, extent) for i, f in zip(images, frames, strict=True)])[order]
    difference = np.abs(patches.astype(int) - separate)
    assert difference.max() <= 1
    assert difference.mean() < 0.2


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (40, 1), (2, 2), (5, 64)])
def test_the_border_of_thin_images_is_replicated(shape: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    frames = np.array([[[1.0, 0, 0], [0, 1, 0]], [[2.0, 0, 3], [0, 2, -4]]], np.float32)
    patches = extract(Atlas([np.zeros((30, 30), np.uint8), image]), frames, np.array([1, 1]), 8, 6.0, "cpu")
    assert np.abs(patches.astype(int) - extract_patches(image, frames, 8, 6.0)).max() <= 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [32, 64])
def test_patches_of_tilted_planes_are_sampled_at_their_grid(photo: Grey, size: int, device: str) -> None:
    images = [photo, photo[:301, :200], photo[100:117, 40:333], np.full((1, 1), 7, np.uint8)]
    atlas = Atlas(images, device)
    random = torch.Generator().manual_seed(0)
    frames = torch.from_numpy(detect_dog(photo, 300)).repeat(4, 1, 1).to(device)
    indices = torch.arange(4).repeat_interleave(len(frames) // 4).to(device)
    tilts = (0.3 * torch.randn(len(frames), 2, generator=random)).to(device)
    visible = torch.rand(len(frames), generator=random).add(0.1).to(device)
    patches = atlas.cut(frames, tilts, visible, size, 12.0, indices)
    spacing = pixel_spacing(frames, size, 12.0) * visible
    grid = tilted_grid(tilts, size, visible)
    expected = average_samples(atlas.sample(frames, grid, 12.0, spacing, indices))
    assert expected.std() > 20
    torch.testing.assert_close(patches, expected, rtol=0, atol=0.05)


def test_patches_are_cut_in_chunks_of_bounded_size(photo: Grey, monkeypatch: pytest.MonkeyPatch) -> None:
    atlas, frames = Atlas([photo]), torch.from_numpy(detect_dog(photo, 20))
    tilts, visible, images = 0.1 * torch.ones(len(frames), 2), torch.ones(len(frames)), torch.zeros(len(frames)).long()
    whole = atlas.cut(frames, tilts, visible, 16, 12.0, images)
    sizes: list[int] = []
    sample = Atlas.sample

    def record(atlas: Atlas, frames: Tensor, *rest: Any) -> Tensor:
        sizes.append(len(frames))
        return sample(atlas, frames, *rest)

    monkeypatch.setattr(Atlas, "sample", record)
    monkeypatch.setattr("doap.images.atlas.atlas.CHUNK_PIXELS", 7 * 16**2)
    assert torch.equal(atlas.cut(frames, tilts, visible, 16, 12.0, images), whole)
    assert sizes == [7] * (len(frames) // 7) + [len(frames) % 7]
    assert atlas.cut(frames[:0], tilts[:0], visible[:0], 16, 12.0, images[:0]).shape == (0, 16, 16)
