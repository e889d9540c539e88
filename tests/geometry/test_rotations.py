"""Rotations of the plane, against scipy's polar decomposition and a search over all angles."""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import polar

from doap.geometry.rotations import relative_rotations, rotation_angles


def random_frames(count: int, seed: int) -> NDArray[np.float64]:
    """Return frames of which none reflects the plane."""
    frames = np.random.default_rng(seed).normal(size=(count, 2, 3))
    frames[:, 0, :2] *= np.sign(np.linalg.det(frames[:, :, :2]))[:, None]
    return frames


def polar_angle(matrix: NDArray[np.float64]) -> float:
    rotation, _ = polar(matrix)
    return float(np.angle(rotation[0, 0] + 1j * rotation[1, 0]))


def test_angles_are_those_of_the_polar_decomposition() -> None:
    frames = random_frames(50, 0)
    expected = [polar_angle(frame[:, :2]) for frame in frames]
    np.testing.assert_allclose(rotation_angles(frames), expected, atol=1e-9)
    np.testing.assert_allclose(rotation_angles(frames[:, :, :2]), expected, atol=1e-9)


def test_the_rotation_is_the_nearest_one_also_to_a_reflection() -> None:
    shapes = np.random.default_rng(1).normal(size=(50, 2, 2))
    assert (np.linalg.det(shapes) < 0).any()
    angles = np.linspace(-np.pi, np.pi, 20_001)
    rotations = np.array([[np.cos(angles), -np.sin(angles)], [np.sin(angles), np.cos(angles)]]).transpose(2, 0, 1)
    nearest = [angles[((rotations - shape) ** 2).sum((1, 2)).argmin()] for shape in shapes]
    np.testing.assert_allclose(np.exp(1j * rotation_angles(shapes)), np.exp(1j * np.array(nearest)), atol=1e-3)


def test_relative_rotations_are_in_the_coordinates_of_the_first_frame() -> None:
    first, second = random_frames(50, 2), random_frames(50, 3)
    expected = [polar_angle(np.linalg.inv(a[:, :2]) @ b[:, :2]) for a, b in zip(first, second, strict=True)]
    np.testing.assert_allclose(relative_rotations(first, second), expected, atol=1e-9)
    single = relative_rotations(first.astype(np.float32), second.astype(np.float32))
    assert single.dtype == np.float64
    np.testing.assert_allclose(np.exp(1j * single), np.exp(1j * np.array(expected)), atol=1e-3)


def test_a_turn_has_its_sign() -> None:
    quarter = np.array([[[0.0, -2.0, 5.0], [2.0, 0.0, 7.0]]])
    upright = np.array([[[3.0, 0.0, 1.0], [0.0, 3.0, 1.0]]])
    np.testing.assert_allclose(relative_rotations(upright, quarter), [np.pi / 2])
    np.testing.assert_allclose(relative_rotations(quarter, upright), [-np.pi / 2])
    assert relative_rotations(upright[:0], quarter[:0]).shape == (0,)
