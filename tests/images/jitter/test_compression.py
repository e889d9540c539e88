import io

import numpy as np
import pytest
import torch
from PIL import Image

from doap.images.extraction import extract_patches
from doap.images.jitter.compression import BLOCK, compress, compress_some, compress_views
from doap.types import Grey

SIZE, EXTENT = 32, 12.0


def with_pillow(image: Grey, quality: int) -> Grey:
    """Return an image after compression by libjpeg."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return np.array(Image.open(file))


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def frames_at(spacing: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return frames of random positions whose patch pixels are `spacing` photo pixels apart."""
    angle = rng.uniform(0, 2 * np.pi, count)
    scale = spacing * SIZE / 2 / EXTENT
    shape = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]).transpose(2, 0, 1)
    centre = rng.uniform(100, 400, (count, 2))
    return np.concatenate([shape, centre[:, :, None]], 2).astype(np.float32)


def compressed_patches(patches: Grey, frames: np.ndarray, quality: float, shift: float = 0.0) -> np.ndarray:
    count = len(frames)
    shapes = EXTENT * torch.from_numpy(frames[:, :, :2])
    positions = torch.from_numpy((frames[:, :, 2] + shift) % BLOCK)
    return compress_views(torch.from_numpy(patches).float(), shapes, torch.full((count,), quality), positions).numpy()


@pytest.mark.parametrize("quality", [10, 30, 50, 75, 90])
def test_compression_equals_libjpeg(photo: Grey, quality: int) -> None:
    image = photo[: photo.shape[0] // 8 * 8, : photo.shape[1] // 8 * 8].copy()
    expected = with_pillow(image, quality).astype(float)
    both = torch.from_numpy(np.stack([image, image[::-1]])).float()
    result = compress(both, torch.tensor([float(quality), 1.0])).numpy()[0]
    assert np.abs(result - expected).mean() < 0.25  # libjpeg computes in integers
    assert correlation(result - image, expected - image) > 0.95


@pytest.mark.parametrize("spacing", [0.4, 0.7, 1.0, 1.4])
def test_views_have_the_errors_of_a_compressed_photo(photo: Grey, spacing: float) -> None:
    frames = frames_at(spacing, 200, np.random.default_rng(0))
    patches, expected = (
        extract_patches(image, frames, SIZE, EXTENT).astype(float) for image in (photo, with_pillow(photo, 20))
    )
    errors = compressed_patches(patches, frames, 20.0) - patches
    elsewhere = compressed_patches(patches, frames, 20.0, shift=4.0) - patches
    true = expected - patches
    assert 0.7 < errors.std() / true.std() < 1.1
    # The error of a block depends on all its pixels, also on those outside of the patch.
    assert correlation(errors, true) > correlation(elsewhere, true) + 0.1


def test_coarse_views_stay_as_they_are(photo: Grey) -> None:
    frames = frames_at(1.6, 50, np.random.default_rng(0))
    patches = extract_patches(photo, frames, SIZE, EXTENT)
    assert (compressed_patches(patches, frames, 10.0) == patches).all()


def test_a_share_of_the_views_is_compressed(photo: Grey) -> None:
    frames = frames_at(0.8, 200, np.random.default_rng(0))
    patches = torch.from_numpy(extract_patches(photo, frames, SIZE, EXTENT)).float()
    shapes = EXTENT * torch.from_numpy(frames[:, :, :2])
    first, again, other = (
        compress_some(patches, shapes, 0.25, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    changed, others = ((views != patches).flatten(1).any(1) for views in (first, other))
    assert changed.sum() == others.sum() == 50
    assert not torch.equal(changed, others)
