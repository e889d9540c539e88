import kornia
import numpy as np
import pytest
import torch

from doap.errors import DoapError
from doap.images import extraction, opencv_extraction
from doap.images.extraction import Pyramid, are_patches_inside, axis_lengths, extract_patch_tensor, extract_patches
from doap.images.frames import detect_dog
from doap.types import Frames, Grey


def square(x: float, y: float, half: float, degrees: float = 0.0) -> Frames:
    angle = np.radians(degrees)
    c, s = half * np.cos(angle), half * np.sin(angle)
    return np.array([[[c, -s, x], [s, c, y]]], np.float32)


def supersampled(image: np.ndarray, frame: np.ndarray, size: int, extent: float, fine: int = 16) -> np.ndarray:
    """Average 16x16 bilinear samples of the full image per patch pixel, by the definition."""
    steps = (2 * np.arange(size * fine) + 1) / (size * fine) - 1
    unit = np.stack(np.meshgrid(steps, steps), -1)
    points = extent * unit @ frame[:, :2].T + frame[:, 2]
    x, y = points[..., 0].clip(0, image.shape[1] - 1), points[..., 1].clip(0, image.shape[0] - 1)
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    right, bottom = np.minimum(left + 1, image.shape[1] - 1), np.minimum(top + 1, image.shape[0] - 1)
    u, v = x - left, y - top
    grey = image.astype(float)
    samples = (1 - v) * ((1 - u) * grey[top, left] + u * grey[top, right])
    samples += v * ((1 - u) * grey[bottom, left] + u * grey[bottom, right])
    return np.asarray(samples.reshape(size, fine, size, fine).mean((1, 3)))


def point_sampled(image: np.ndarray, frame: np.ndarray, size: int, extent: float) -> np.ndarray:
    return supersampled(image, frame, size, extent, fine=1)


def rms(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.sqrt(np.mean((a.astype(float) - b) ** 2)))


def test_a_frame_on_the_pixel_grid_gives_the_pixels_filtered_within_a_pixel(photo: Grey) -> None:
    """The patch covers 16 pixels on either side: the 2x2 samples of a pixel average it with its neighbours."""
    patch = extract_patches(photo, square(115.5, 215.5, 16), 32, 1)[0]
    own = photo[200:232, 100:132].astype(float)
    padded = photo[199:233, 99:133].astype(float)
    taps = np.array([1, 6, 1]) / 8  # two samples a quarter pixel off the centre, linearly interpolated
    rows = sum(t * padded[i : i + 32] for i, t in enumerate(taps))
    expected = sum(t * rows[:, i : i + 32] for i, t in enumerate(taps))
    assert np.abs(patch - expected).max() <= 0.51
    assert rms(patch, own) < 8


def test_patches_are_close_to_the_supersampled_reference(photo: Grey) -> None:
    frames = detect_dog(photo)[::14]
    patches = extract_patches(photo, frames, 32, 12)
    references = [supersampled(photo, frame, 32, 12) for frame in frames]
    errors = list(map(rms, patches, references))
    naive = [rms(point_sampled(photo, f, 32, 12), reference) for f, reference in zip(frames, references, strict=True)]
    # The reference is a box filter of the patch pixel's size; the filter of the pyramid is slightly wider.
    assert np.mean(errors) < 3.0
    assert np.mean(errors) < 0.6 * np.mean(naive)


@pytest.mark.parametrize("spacing", [2.5, 4, 6, 10])
def test_fine_texture_does_not_alias(spacing: float) -> None:
    """The deviation of white noise averaged over spacing² pixels is reduced by the factor `spacing`."""
    noise = np.random.default_rng(0).integers(0, 256, (800, 800), dtype=np.uint8)
    frame = square(400, 400, 16 * spacing, 20)
    expected = supersampled(noise, frame[0], 32, 1).std()
    assert extract_patches(noise, frame, 32, 1)[0].std() < 1.25 * expected
    assert point_sampled(noise, frame[0], 32, 1).std() > 1.8 * expected


def test_a_ramp_is_sampled_exactly_at_every_scale_and_rotation() -> None:
    y, x = np.mgrid[:400, :400]
    ramp = np.round(0.3 * x + 0.2 * y + 10).astype(np.uint8)
    for half, degrees in [(10, 0), (20, 30), (45, 77), (100, -140)]:
        frame = square(200, 200, half, degrees)
        steps = (2 * np.arange(32) + 1) / 32 - 1
        points = np.stack(np.meshgrid(steps, steps), -1) @ frame[0, :, :2].T + frame[0, :, 2]
        expected = 0.3 * points[..., 0] + 0.2 * points[..., 1] + 10
        assert np.abs(extract_patches(ramp, frame, 32, 1)[0] - expected).max() < 1.2


def test_the_border_of_the_image_is_replicated(photo: Grey) -> None:
    patch = extract_patches(photo, square(-100, 249.5, 16), 32, 1)[0]
    assert (patch == patch[:, :1]).all()
    np.testing.assert_allclose(patch[:, 0], photo[234:266, 0], atol=12)
    assert extract_patches(np.full((1, 1), 77, np.uint8), square(0, 0, 5), 32, 1).tolist() == [[[77] * 32] * 32]


def test_the_levels_of_the_pyramid_are_aligned(photo: Grey) -> None:
    """A pixel of a level lies in the middle of the 2x2 pixels below, also for odd sizes."""
    pyramid = Pyramid(photo[:301, :403])
    assert [tuple(level.shape[2:]) for level in pyramid.levels[:3]] == [(301, 403), (151, 202), (76, 101)]
    y, x = np.mgrid[:301, :403]
    stairs = Pyramid((x // 4 + y // 4).astype(np.uint8)).levels[2][0, 0].numpy()
    rows, columns = np.mgrid[5:71, 5:96]
    # Each stair is exactly one pixel of this level.
    np.testing.assert_allclose(stairs[5:-5, 5:-5], rows + columns, atol=1e-3)


def test_patches_agree_with_kornias(photo: Grey) -> None:
    """Independent extraction, single samples of a coarser pyramid: the same position and orientation."""
    frames = detect_dog(photo, 300)
    inside = (np.abs(frames[:, :, :2]).sum(2) * 12 < np.minimum(frames[:, :, 2], 511 - frames[:, :, 2])).all(1)
    frames = frames[inside]
    assert len(frames) > 50
    ours = extract_patches(photo, frames, 32, 12).astype(float)
    lafs = torch.from_numpy(frames * np.array([12, 12, 1], np.float32))[None]
    image = torch.from_numpy(photo)[None, None].float()
    theirs = kornia.feature.extract_patches_from_pyramid(image, lafs, 32)[0, :, 0].numpy()
    correlation = [np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in zip(ours, theirs, strict=True)]
    assert np.median(correlation) > 0.97
    # Control: patches rotated by 90 degrees do not correlate.
    rotated = [np.corrcoef(a.ravel(), np.rot90(b).ravel())[0, 1] for a, b in zip(ours, theirs, strict=True)]
    assert np.median(rotated) < 0.6


def test_chunks_change_nothing(photo: Grey, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = detect_dog(photo, 100)
    whole = extract_patches(photo, frames, 32, 12)
    monkeypatch.setattr(opencv_extraction, "BLOCK_PIXELS", 7 * 32**2)
    np.testing.assert_array_equal(extract_patches(Pyramid(photo), frames, 32, 12), whole)
    monkeypatch.setattr(extraction, "is_exact", lambda: False)
    whole = extract_patches(photo, frames, 32, 12)
    monkeypatch.setattr(extraction, "CHUNK_SIZE", 7)
    np.testing.assert_array_equal(extract_patches(Pyramid(photo), frames, 32, 12), whole)
    assert extract_patches(photo, frames[:0], 32, 12).shape == (0, 32, 32)


def test_large_patches_are_sampled_in_smaller_chunks(photo: Grey, monkeypatch: pytest.MonkeyPatch) -> None:
    frames, counts = detect_dog(photo, 20), []
    whole = extract_patches(photo, frames, 128, 12)
    sample = Pyramid.sample

    def count(pyramid: Pyramid, points: torch.Tensor, spacing: torch.Tensor) -> torch.Tensor:
        counts.append(len(points))
        return sample(pyramid, points, spacing)

    monkeypatch.setattr(extraction, "is_exact", lambda: False)
    monkeypatch.setattr(extraction, "CHUNK_SIZE", 20)
    monkeypatch.setattr(Pyramid, "sample", count)
    assert np.abs(extract_patches(photo, frames, 128, 12).astype(int) - whole).max() <= 1
    assert set(counts) == {5}
    counts.clear()
    extract_patches(photo, frames, 64, 12)
    assert counts == [20]


def random_frames(count: int, shape: tuple[int, ...], scale: tuple[float, float]) -> Frames:
    """Return anisotropic frames in and around an image, with log-uniform scales."""
    random = np.random.default_rng(1)
    sizes = np.exp(random.uniform(np.log(scale[0]), np.log(scale[1]), (count, 1, 1)))
    centres = random.uniform(-0.2, 1.2, (count, 2, 1)) * np.array(shape[::-1])[:, None]
    return np.concatenate([sizes * random.normal(size=(count, 2, 2)), centres], 2).astype(np.float32)


@pytest.mark.parametrize("shape", [(512, 512), (301, 403), (40, 511), (17, 16), (1, 200), (1, 1)])
@pytest.mark.parametrize("size", [32, 33])
def test_opencvs_patches_equal_torchs(
    shape: tuple[int, int], size: int, photo: Grey, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = photo[: shape[0], : shape[1]]
    frames = random_frames(300, shape, (0.05, 60))
    fast = extract_patches(image, frames, size, 12)
    monkeypatch.setattr(extraction, "is_exact", lambda: False)
    difference = np.abs(fast.astype(int) - extract_patches(image, frames, size, 12))
    assert difference.max() <= 1
    assert difference.mean() < 0.002


@pytest.mark.parametrize("shape", [(512, 512), (301, 403), (600, 17), (16, 1000)])
def test_opencvs_levels_equal_torchs(shape: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    expected = torch.from_numpy(image).float()[None, None]
    for level in Pyramid(image).levels:
        torch.testing.assert_close(level, expected, atol=1e-4, rtol=0)
        expected = extraction._halve(expected)
    assert min(level.shape[2:]) < 16


def test_levels_are_built_when_they_are_used(photo: Grey, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[np.ndarray] = []

    def halve(image: np.ndarray) -> np.ndarray:
        built.append(image)
        return opencv_extraction.halve(image)

    monkeypatch.setattr(extraction, "halve", halve)
    pyramid = Pyramid(photo)
    extract_patches(pyramid, square(200, 200, 10), 32, 1)
    assert not built
    extract_patches(pyramid, square(200, 200, 70), 32, 1)  # four pixels apart
    assert [image.shape[0] for image in built] == [512, 256]
    assert built[0].dtype == np.uint8  # the image itself, not its copy in float32


def test_a_pyramid_of_a_tensor_equals_that_of_the_array(photo: Grey) -> None:
    frames = detect_dog(photo, 100)
    expected = extract_patches(photo, frames, 32, 12)
    for tensor in (torch.from_numpy(photo), torch.from_numpy(photo).float(), torch.from_numpy(photo).double()):
        patches = extract_patch_tensor(Pyramid(tensor), torch.from_numpy(frames), 32, 12)
        assert patches.dtype == torch.uint8
        np.testing.assert_array_equal(patches.numpy(), expected)
    read_only = photo[:, ::-1]
    read_only.flags.writeable = False
    assert extract_patches(read_only, frames, 32, 12).shape == (100, 32, 32)
    for shape in ((3, 20, 20), (0, 5)):
        with pytest.raises(DoapError, match="must be"):
            Pyramid(np.zeros(shape, np.uint8))


@pytest.mark.parametrize("is_exact", [True, False])
def test_degenerate_frames_are_harmless(is_exact: bool, photo: Grey, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_exact:
        monkeypatch.setattr(extraction, "is_exact", lambda: False)
    values = [np.nan, np.inf, -np.inf, 0, 1e-30, 1e10, -1e38, 3e38, 5]
    grid = np.array(np.meshgrid(values, values, [5.0], [np.nan, 1e30, 7, -1e9])).reshape(4, -1).T
    frames = np.concatenate([grid, grid[:, ::-1]])[:, [0, 1, 3, 1, 2, 3]].reshape(-1, 2, 3).astype(np.float32)
    good = square(200, 200, 20)
    patches = extract_patches(photo, np.concatenate([frames, good]), 32, 1)
    np.testing.assert_array_equal(patches[-1], extract_patches(photo, good, 32, 1)[0])
    far = extract_patches(photo, square(1e8, -1e8, 20), 32, 1)
    assert (far == photo[0, -1]).all()
    point = extract_patches(photo, square(100, 200, 0), 32, 1)
    assert (point == photo[200, 100]).all()


def test_axis_lengths_are_the_singular_values() -> None:
    shapes = torch.randn(200, 2, 2, dtype=torch.float64)
    shapes[0] = torch.eye(2)
    expected = torch.linalg.svdvals(shapes)
    torch.testing.assert_close(torch.stack(axis_lengths(shapes), 1), expected)


def test_patches_inside_have_all_corners_inside() -> None:
    random = np.random.default_rng(0)
    frames = np.concatenate([random.normal(0, 3, (300, 2, 2)), random.uniform(0, 100, (300, 2, 1))], 2)
    corners = frames[:, None, :, :2] @ (4 * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])[None, :, :, None])
    points = corners[..., 0] + frames[:, None, :, 2]
    expected = ((points >= 0) & (points <= np.array([119, 79]))).all((1, 2))
    assert 10 < expected.sum() < 290
    np.testing.assert_array_equal(are_patches_inside(frames.astype(np.float32), (80, 120), 4.0), expected)


@pytest.mark.parametrize("shape", [(200, 333), (17, 90), (16, 16), (1, 40), (1, 1)])
def test_common_operations_sample_the_same_as_a_loop_over_levels(shape: tuple[int, int]) -> None:
    """On the CPU, `sample` is torch's grid_sample at every level."""
    random = np.random.default_rng(0)
    pyramid = Pyramid(random.integers(0, 256, shape, dtype=np.uint8))
    points = random.uniform(-20, 20 + max(shape), (300, 4, 4, 2)).astype(np.float32)
    points[0] = 1e6
    spacing = torch.from_numpy(random.uniform(0, 20, 300).astype(np.float32))
    numbers = pyramid.level_numbers(spacing)
    assert set(numbers.tolist()) == set(range(len(pyramid)))
    gathered = pyramid._gather(torch.from_numpy(points), numbers)
    torch.testing.assert_close(gathered, pyramid.sample(torch.from_numpy(points), spacing), rtol=0, atol=0.01)


def test_autocast_and_the_default_type_do_not_move_sample_points(photo: Grey) -> None:
    frames = torch.from_numpy(detect_dog(photo, 20))
    pyramid = Pyramid(photo)
    points, spacing = extraction.patch_points(frames, 32, 12.0)
    samples = pyramid.sample(points, spacing)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = extraction.patch_points(frames, 32, 12.0)
        assert torch.equal(cast[0], points)
        assert torch.equal(pyramid.sample(*cast), samples)
        assert torch.is_autocast_enabled("cpu")
    extraction._binomial.cache_clear()
    torch.set_default_dtype(torch.float64)
    try:
        assert extraction._halve(pyramid.level(0)).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
        extraction._binomial.cache_clear()
