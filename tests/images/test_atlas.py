import numpy as np
import pytest
import torch

from doap.images.atlas import Atlas
from doap.images.extraction import average_samples, extract_patches, patch_grid, pixel_spacing, to_bytes
from doap.images.frames import detect_dog

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(autouse=True)
def _needs(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


def cut_from(
    atlas: Atlas, frames: np.ndarray, pictures: np.ndarray, size: int, extent: float, device: str
) -> np.ndarray:
    placed = torch.from_numpy(frames).to(device)
    grid = patch_grid(size, placed.device)
    spacing = pixel_spacing(placed, size, extent)
    values = atlas.cut(placed, (grid[..., 0], grid[..., 1]), extent, spacing, torch.from_numpy(pictures).to(device))
    return to_bytes(average_samples(values)).cpu().numpy()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("extent", [3.0, 12.0, 40.0])
def test_patches_of_many_pictures_equal_those_of_each_to_one_grey_level(
    photo: np.ndarray, extent: float, device: str
) -> None:
    pictures = [photo, photo[:301, :200], photo[100:117, 40:333], photo[:, ::-1].copy()]
    frames = [detect_dog(picture, 200) for picture in pictures]
    which = np.concatenate([np.full(len(f), n) for n, f in enumerate(frames)])
    order = np.random.default_rng(0).permutation(len(which))
    together = np.concatenate(frames)[order]
    atlas = Atlas(pictures, device)
    cut = cut_from(atlas, together, which[order], 32, extent, device)
    alone = np.concatenate([extract_patches(p, f, 32, extent) for p, f in zip(pictures, frames, strict=True)])[order]
    difference = np.abs(cut.astype(int) - alone)
    assert difference.max() <= 1
    assert difference.mean() < 0.2


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (40, 1), (2, 2), (5, 64)])
def test_thin_pictures_repeat_their_border(shape: tuple[int, int]) -> None:
    picture = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    frames = np.array([[[1.0, 0, 0], [0, 1, 0]], [[2.0, 0, 3], [0, 2, -4]]], np.float32)
    cut = cut_from(Atlas([np.zeros((30, 30), np.uint8), picture]), frames, np.array([1, 1]), 8, 6.0, "cpu")
    assert np.abs(cut.astype(int) - extract_patches(picture, frames, 8, 6.0)).max() <= 1
