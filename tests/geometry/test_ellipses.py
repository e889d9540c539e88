import numpy as np
import pytest

from doap.geometry.ellipses import overlap, scales
from doap.images.frames import transform_frames
from doap.types import Frames
from support.counted_overlap import counted_overlap
from support.random_frames import random_frames


def circle(x: float, y: float, radius: float, degrees: float = 0.0) -> Frames:
    c, s = radius * np.cos(np.radians(degrees)), radius * np.sin(np.radians(degrees))
    return np.array([[[c, -s, x], [s, c, y]]], np.float32)


@pytest.mark.parametrize("shift", [0.0, 0.3, 1.0, 1.9, 2.5])
@pytest.mark.parametrize("degrees", [0, 45, 90])
def test_overlap_of_circles_is_the_lens_formula(shift: float, degrees: float) -> None:
    lens = 2 * np.arccos(shift / 2) - shift / 2 * np.sqrt(4 - shift**2) if shift < 2 else 0.0
    x, y = 5 * shift * np.cos(np.radians(degrees)), 5 * shift * np.sin(np.radians(degrees))
    computed = overlap(circle(10, 20, 5), circle(10 + x, 20 + y, 5))[0]
    assert computed == pytest.approx(lens / (2 * np.pi - lens), abs=1e-3)


def test_overlap_is_what_a_fine_grid_counts() -> None:
    """Axis ratios up to 8 : 1, more than affine frames have; a grid misses thinner ellipses."""
    random = np.random.default_rng(0)
    angles, stretch, radii = random.uniform(0, np.pi, (2, 60)), random.uniform(-1.04, 1.04, (2, 60)), (5, 6)
    ellipses = []
    for angle, ratio, radius in zip(angles, np.exp(stretch), radii, strict=True):
        turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], 1).reshape(-1, 2, 2)
        shapes = turn * (radius * np.stack([ratio, 1 / ratio], 1))[:, None]
        ellipses.append(np.concatenate([shapes, random.uniform(0, 8, (60, 2, 1))], 2).astype(np.float32))
    ellipses[1][:20] = ellipses[0][:20] + random.normal(0, 0.3, (20, 2, 3)).astype(np.float32)
    first, second = ellipses
    counted = np.concatenate([counted_overlap(first[k : k + 5], second[k : k + 5], 300) for k in range(0, 60, 5)])
    assert (counted > 0.6).sum() > 10
    assert (counted < 0.3).sum() > 10
    np.testing.assert_allclose(overlap(first, second), counted, atol=3e-3)


def test_overlap_is_the_same_after_any_affine_map() -> None:
    """Intersection over union is invariant, although the lines cross the ellipses differently."""
    first, second = random_frames(60, 2, 15), random_frames(60, 3, 15)
    count = min(len(first), len(second))
    affine = np.array([[1.5, 0.8, 3], [-0.4, 0.7, 5], [0, 0, 1.0]])
    plain = overlap(first[:count], second[:count])
    mapped = overlap(transform_frames(first[:count], affine), transform_frames(second[:count], affine))
    np.testing.assert_allclose(mapped, plain, atol=1e-3)


def test_overlap_of_concentric_ellipses_is_the_ratio_of_areas() -> None:
    ellipse = np.array([[[0, -3, 5], [6, 0, 5]]], np.float32)
    assert overlap(ellipse, ellipse * np.array([0.5, 0.5, 1], np.float32))[0] == pytest.approx(0.25, abs=1e-3)


def test_scale_is_the_radius_of_equal_area() -> None:
    assert scales(circle(0, 0, 3))[0] == pytest.approx(3)
    assert scales(np.array([[[8, 0, 0], [0, -2, 0]]], np.float32))[0] == pytest.approx(4)
