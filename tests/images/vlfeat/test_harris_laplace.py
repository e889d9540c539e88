import numpy as np
import pytest

from doap.images.vlfeat.harris_laplace import (
    Corners,
    find_corners,
    find_harris_laplace,
    harris_response,
    select_scales,
    suppress_weaker,
)
from doap.images.vlfeat.scale_space import LEVELS, ScaleSpace, level_sigma
from doap.types import Grey


def blob(sigma: float, x: float = 80, y: float = 64) -> Grey:
    rows, columns = np.mgrid[:128, :160]
    values = 30 + 200 * np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * sigma**2))
    return np.asarray(np.round(values), np.uint8)


def test_the_response_is_scale_normalised() -> None:
    """A blob and another of twice the size give the same response at twice the sigma, in the same octave's pixels."""
    small, large = ScaleSpace(blob(4.0)), ScaleSpace(blob(8.0))
    for index in range(LEVELS):
        response = harris_response(small[0, index], level_sigma(0, index))[64, 80]
        doubled = harris_response(large[1, index], level_sigma(1, index) / 2)[32, 40]
        assert response > 1e-5
        assert doubled == pytest.approx(response, rel=0.05)


def test_the_response_is_negative_on_edges_and_zero_where_flat() -> None:
    edge = np.zeros((40, 40), np.float32)
    edge[:, 20:] = 1
    response = harris_response(edge, 2.0)
    assert response[20, 20] < -1e-3
    assert response[20, 1] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("sigma", [3.0, 4.5, 7.0])
def test_the_scale_of_a_blob_is_its_sigma(sigma: float) -> None:
    """The normalised Laplacian of a Gaussian blob is extremal at its own sigma."""
    corners = find_harris_laplace(ScaleSpace(blob(sigma)))
    central = np.hypot(*(corners.centres - [80, 64]).T) < 1
    assert central.any()
    # The camera's blur of 0.5 pixels is added to each level but not contained in the image.
    assert np.abs(np.log(corners.sigmas[central] / sigma)).min() < 0.05


def test_corners_are_found_between_pixels() -> None:
    corners = find_corners(ScaleSpace(blob(5.0, 80.3, 63.6)))
    central = corners.centres[np.hypot(*(corners.centres - [80.3, 63.6]).T) < 2]
    assert len(central) >= 2
    np.testing.assert_allclose(central, np.broadcast_to([80.3, 63.6], central.shape), atol=0.1)


def test_corners_without_an_extremal_laplacian_are_dropped(photo: Grey) -> None:
    space = ScaleSpace(photo[100:300, 100:400])
    corners = find_corners(space)
    selected = select_scales(space, corners)
    places = set(map(tuple, corners.centres.tolist()))
    assert {tuple(place) for place in selected.centres.tolist()} < places
    assert len(selected.sigmas) > 100
    flat = Corners(np.array([[5.0, 5.0]]), np.array([2.0]), np.array([1.0]))
    assert len(select_scales(ScaleSpace(np.full((64, 64), 99, np.uint8)), flat).sigmas) == 0


def slow_suppression(corners: Corners) -> list[int]:
    """Return the indices of the retained corners by the definition, pair by pair."""
    strengths = np.abs(corners.responses)
    retained = [True] * len(strengths)
    for i in range(len(strengths)):
        if retained[i]:
            for j in range(len(strengths)):
                near = (np.abs(corners.centres[i] - corners.centres[j]) < 0.5 * corners.sigmas[i]).all()
                ratio = corners.sigmas[i] / corners.sigmas[j]
                if near and 1 / 1.5 < ratio < 1.5 and strengths[i] > strengths[j]:
                    retained[j] = False
    return [index for index, is_retained in enumerate(retained) if is_retained]


def test_weaker_corners_nearby_are_suppressed() -> None:
    random = np.random.default_rng(0)
    centres = random.uniform(0, 30, (200, 2))
    corners = Corners(centres, random.uniform(1, 8, 200), random.normal(size=200).round(1))
    retained = slow_suppression(corners)
    assert 50 < len(retained) < 150
    np.testing.assert_array_equal(suppress_weaker(corners).centres, centres[retained])
