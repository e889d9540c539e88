import numpy as np
import pytest
import torch

from doap.photos.atlas import Atlas
from doap.photos.extract import affine_points, average_samples, extract_patches, to_bytes
from doap.photos.frames import detect_dog

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(autouse=True)
def _needs(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


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
    points, spacing = affine_points(torch.from_numpy(together).to(device), 32, extent)
    values = atlas.sample(points, spacing, torch.from_numpy(which[order]).to(device))
    cut = to_bytes(average_samples(values)).cpu().numpy()
    alone = np.concatenate([extract_patches(p, f, 32, extent) for p, f in zip(pictures, frames, strict=True)])[order]
    difference = np.abs(cut.astype(int) - alone)
    assert difference.max() <= 1
    assert difference.mean() < 0.2


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (40, 1), (2, 2), (5, 64)])
def test_thin_pictures_repeat_their_border(shape: tuple[int, int]) -> None:
    picture = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    frames = np.array([[[1.0, 0, 0], [0, 1, 0]], [[2.0, 0, 3], [0, 2, -4]]], np.float32)
    points, spacing = affine_points(torch.from_numpy(frames), 8, 6.0)
    values = Atlas([np.zeros((30, 30), np.uint8), picture]).sample(points, spacing, torch.tensor([1, 1]))
    cut = to_bytes(average_samples(values)).numpy()
    assert np.abs(cut.astype(int) - extract_patches(picture, frames, 8, 6.0)).max() <= 1
