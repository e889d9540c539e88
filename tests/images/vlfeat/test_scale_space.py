import numpy as np
import pytest
import torch

from doap.images.vlfeat.scale_space import FIRST_OCTAVE, LEVELS, ScaleSpace, level_sigma, smooth
from doap.types import Grey


@pytest.fixture(scope="module")
def space() -> ScaleSpace:
    """Scale space of a Gaussian blob of sigma 6 at (70, 50)."""
    return ScaleSpace(blob(6.0))


def blob(sigma: float) -> Grey:
    y, x = np.mgrid[:101, :140]
    return np.asarray(np.round(250 * np.exp(-((x - 70) ** 2 + (y - 50) ** 2) / (2 * sigma**2))), np.uint8)


def test_levels_are_the_image_blurred_by_their_sigma(space: ScaleSpace) -> None:
    """A Gaussian stays one under blur: its variance grows, its volume stays."""
    assert space.last_octave == 2
    for octave in range(FIRST_OCTAVE, space.last_octave + 1):
        for index in range(LEVELS):
            level = space[octave, index]
            step = 2.0**octave
            assert level.shape == (int(101 / step), int(140 / step))
            variance = 36 + level_sigma(octave, index) ** 2 - 0.25
            y, x = (step * axis for axis in np.mgrid[: level.shape[0], : level.shape[1]])
            squared = (x - 70) ** 2 + (y - 50) ** 2
            expected = 250 / 255 * 36 / variance * np.exp(-squared / (2 * variance))
            np.testing.assert_allclose(level, expected, atol=0.02)


def test_the_sigma_doubles_with_every_octave() -> None:
    assert level_sigma(0, 0) == pytest.approx(2.015874)
    assert level_sigma(3, 2) == pytest.approx(8 * 2 ** (2 / 3) * 2.015874)


def test_smoothing_replicates_the_border_and_keeps_the_mean() -> None:
    plane = np.zeros((9, 9), np.float32)
    plane[:, :4] = 1
    smoothed = smooth(plane, 1.0)
    np.testing.assert_allclose(smoothed, np.repeat(smoothed[:1], 9, 0), atol=1e-6)
    assert smoothed[0, 0] == pytest.approx(1, abs=0.01)
    assert smoothed[0, 3] + smoothed[0, 4] == pytest.approx(1, abs=1e-6)
    np.testing.assert_array_equal(smooth(plane, 0.0), plane)


def test_patches_show_the_level_in_the_frames_coordinates(space: ScaleSpace) -> None:
    """The shape stretches the patch; the sigma of the level fits into its smaller axis."""
    shapes = torch.tensor([[[4.5, 0.0], [0.0, 9.0]], [[0.5, 0.0], [0.0, 0.5]], [[0.0, -4.5], [4.5, 0.0]]])
    centres = torch.tensor([[70.0, 50.0], [70.0, 50.0], [76.0, 50.0]])
    patches, sigmas = space.sample(shapes, centres, 2, 1.0, 1.0)
    assert patches.shape == (3, 5, 5)
    np.testing.assert_allclose(sigmas, [level_sigma(1, 0), level_sigma(-1, 0), level_sigma(1, 0)], rtol=1e-6)
    level = space[1, 0]
    np.testing.assert_allclose(patches[0, 2, 2], level[25, 35], rtol=1e-5)
    np.testing.assert_allclose(patches[0], patches[0].flip(0), atol=1e-3)
    variance = 36 + level_sigma(1, 0) ** 2 - 0.25
    for row, step in enumerate((-1.0, -0.5, 0.0, 0.5, 1.0)):
        for patch, offset in ((patches[0, row, 2], (0, 9 * step)), (patches[2, row, 2], (6 - 4.5 * step, 0))):
            expected = 250 / 255 * 36 / variance * np.exp(-(offset[0] ** 2 + offset[1] ** 2) / (2 * variance))
            assert float(patch) == pytest.approx(expected, abs=0.02)


def test_beyond_the_last_octave_its_blurred_levels_are_used(space: ScaleSpace) -> None:
    shapes = torch.tensor([2.5, 5.0]).view(2, 1, 1) * level_sigma(space.last_octave, 0) * torch.eye(2)
    _, sigmas = space.sample(shapes, torch.full((2, 2), 50.0), 2, 1.0, 1.0)
    np.testing.assert_allclose(sigmas, [level_sigma(space.last_octave, index) for index in (1, 2)], rtol=1e-6)


def test_outside_the_image_the_border_is_replicated(space: ScaleSpace) -> None:
    patches, _ = space.sample(torch.eye(2)[None], torch.tensor([[-50.0, 50.0]]), 3, 1.0, 1.0)
    np.testing.assert_allclose(patches[0].numpy(), patches[0, :, :1].expand(7, 7).numpy(), atol=1e-6)
