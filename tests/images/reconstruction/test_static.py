import cv2
import numpy as np
import pytest
import skimage

from doap.images.reconstruction.static import edge_map, register_static, thumbnail


def exposed(image: np.ndarray, stops: float) -> np.ndarray:
    """Another exposure: brighter or darker, clipped, with a camera's curve and noise."""
    light = (image / 255) ** 2.2 * 2**stops
    noise = np.random.default_rng(0).normal(0, 2, image.shape)
    return (255 * light.clip(0, 1) ** (1 / 2.2) + noise).round().clip(0, 255).astype(np.uint8)


def moved(image: np.ndarray, motion: np.ndarray) -> np.ndarray:
    height, width = image.shape
    return cv2.warpAffine(image, motion, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)


@pytest.mark.parametrize("stops", [-3, -1, 1, 2])
@pytest.mark.parametrize("shift", [(0.0, 0.0, 0.0), (3.3, -2.1, 0.0), (-1.2, 4.0, 0.6)])
def test_the_motion_between_exposures_is_found(
    photo: np.ndarray, stops: float, shift: tuple[float, float, float]
) -> None:
    x, y, degrees = shift
    motion = cv2.getRotationMatrix2D((256, 256), degrees, 1.0) + np.array([[0, 0, x], [0, 0, y]])
    found = register_static(edge_map(photo), edge_map(moved(exposed(photo, stops), motion)))
    assert found is not None
    places = np.array([[50, 50, 1], [460, 80, 1], [256, 256, 1], [100, 450, 1]], float)
    off = np.linalg.norm(places @ found[:2].T - places @ motion.T, axis=1)
    assert off.max() < 0.7


def test_views_that_moved_and_other_views_are_refused(photo: np.ndarray) -> None:
    edges = edge_map(photo)
    far = np.array([[1, 0, 60], [0, 1, 0]], float)
    zoomed = cv2.getRotationMatrix2D((256, 256), 0, 1.3)
    other = cv2.cvtColor(skimage.data.astronaut(), cv2.COLOR_RGB2GRAY)
    for image in (moved(photo, far), moved(photo, zoomed), other, np.full_like(photo, 90), photo[::-1].copy()):
        assert register_static(edges, edge_map(image)) is None
    assert register_static(edges, edge_map(photo[:, :-1])) is None
    assert register_static(edge_map(photo[:40, :40]), edge_map(photo[:40, :40])) is None


def test_thumbnails_tell_views_apart(photo: np.ndarray) -> None:
    other = cv2.cvtColor(skimage.data.astronaut(), cv2.COLOR_RGB2GRAY)
    plain, darker, different = (thumbnail(edge_map(image)) for image in (photo, exposed(photo, -2), other))
    assert plain @ darker > 0.5 > 0.25 > plain @ different
    assert np.linalg.norm(plain) == pytest.approx(1)
    assert np.isfinite(thumbnail(edge_map(np.zeros((60, 60), np.uint8)))).all()
