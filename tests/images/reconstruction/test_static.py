import cv2
import numpy as np
import pytest

from doap.images.reconstruction.static import edge_map, register_static, thumbnail
from doap.types import Grey
from support.sample_photos import sample_photo


def exposed(image: Grey, stops: float) -> Grey:
    """Change the exposure: brighter or darker, clipped, with the response curve and noise of a camera."""
    light = (image / 255) ** 2.2 * 2**stops
    noise = np.random.default_rng(0).normal(0, 2, image.shape)
    return (255 * light.clip(0, 1) ** (1 / 2.2) + noise).round().clip(0, 255).astype(np.uint8)


def moved(image: Grey, motion: np.ndarray) -> Grey:
    height, width = image.shape
    border = cv2.BORDER_REPLICATE
    warped = cv2.warpAffine(image, motion, (width, height), flags=cv2.INTER_CUBIC, borderMode=border)
    return np.asarray(warped, np.uint8)


@pytest.mark.parametrize("stops", [-3, -1, 1, 2])
@pytest.mark.parametrize("shift", [(0.0, 0.0, 0.0), (3.3, -2.1, 0.0), (-1.2, 4.0, 0.6)])
def test_the_motion_between_exposures_is_found(photo: Grey, stops: float, shift: tuple[float, float, float]) -> None:
    x, y, degrees = shift
    motion = cv2.getRotationMatrix2D((256, 256), degrees, 1.0) + np.array([[0, 0, x], [0, 0, y]])
    actual = register_static(edge_map(photo), edge_map(moved(exposed(photo, stops), motion)))
    assert actual is not None
    points = np.array([[50, 50, 1], [460, 80, 1], [256, 256, 1], [100, 450, 1]], float)
    errors = np.linalg.norm(points @ actual[:2].T - points @ motion.T, axis=1)
    assert errors.max() < 0.7


def test_moved_and_other_views_are_rejected(photo: Grey) -> None:
    edges = edge_map(photo)
    far = np.array([[1, 0, 60], [0, 1, 0]], float)
    zoomed = cv2.getRotationMatrix2D((256, 256), 0, 1.3)
    other = sample_photo("astronaut")
    for image in (moved(photo, far), moved(photo, zoomed), other, np.full_like(photo, 90), photo[::-1].copy()):
        assert register_static(edges, edge_map(image)) is None
    assert register_static(edges, edge_map(photo[:, :-1])) is None
    assert register_static(edge_map(photo[:40, :40]), edge_map(photo[:40, :40])) is None


def test_the_local_mean_of_edges_is_gaussian(photo: Grey) -> None:
    """Compare with the blur at full resolution."""
    light = np.log1p(cv2.GaussianBlur(photo.astype(np.float32), (0, 0), 1.0))
    strength = cv2.magnitude(cv2.Sobel(light, cv2.CV_32F, 1, 0), cv2.Sobel(light, cv2.CV_32F, 0, 1))
    plain = np.minimum(strength / (cv2.GaussianBlur(strength, (0, 0), max(photo.shape) / 20) + 0.02), 4.0)
    errors = np.abs(edge_map(photo) - plain)
    assert errors.mean() < 0.01 * plain.mean()
    assert errors.max() < 0.2  # of 4


def test_thumbnails_distinguish_views(photo: Grey) -> None:
    other = sample_photo("astronaut")
    plain, darker, different = (thumbnail(edge_map(image)) for image in (photo, exposed(photo, -2), other))
    assert plain @ darker > 0.5 > 0.25 > plain @ different
    assert np.linalg.norm(plain) == pytest.approx(1)
    assert np.isfinite(thumbnail(edge_map(np.zeros((60, 60), np.uint8)))).all()
