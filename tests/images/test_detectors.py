from pathlib import Path

import cv2
import kornia
import numpy as np
import pytest
import torch
from benchmarks.repeatability import find_overlaps

from doap.datasets.official.image_sequences import read_sequence
from doap.geometry.ellipses import scales
from doap.images import detectors, frames
from doap.images.affine_shape import affine_shape, orient
from doap.images.detectors import (
    DETECTORS,
    detect_harris,
    detect_harris_affine,
    detect_hessian,
    detect_hessian_affine,
)
from doap.images.extraction import Pyramid
from doap.images.frames import detect_dog, transform_frames
from doap.images.reading import read_grey
from doap.types import Frames, Grey, Homography
from support.frame_measures import angle_errors, angles

OURS = [detect_harris, detect_hessian, detect_harris_affine, detect_hessian_affine]


def blob(
    sigma: float, x: float = 120.3, y: float = 99.6, stretch: float = 1.0, degrees: float = 0.0, height: float = 120
) -> Grey:
    """Return a 200x240 image of a Gaussian of deviation sigma √stretch along `degrees` and sigma / √stretch across."""
    rows, columns = np.mgrid[:200, :240].astype(float)
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    along, across = c * (columns - x) + s * (rows - y), -s * (columns - x) + c * (rows - y)
    values = 60 + height * np.exp(-(along**2 / stretch + across**2 * stretch) / (2 * sigma**2))
    return np.asarray(np.round(values), np.uint8)


@pytest.mark.parametrize("sigma", [2, 3.3, 5, 8, 13])
@pytest.mark.parametrize("height", [120, -50])
def test_a_blob_is_found_at_its_centre_with_its_scale(sigma: float, height: float) -> None:
    image = blob(sigma, height=height)
    detected = detect_hessian(image)
    assert len(detected) == 1
    np.testing.assert_allclose(detected[0, :, 2], [120.3, 99.6], atol=0.1 + 0.02 * sigma)
    assert scales(detected)[0] == pytest.approx(0.89 * sigma, rel=0.06)


def test_scale_means_the_same_for_every_detector() -> None:
    for sigma in (2.5, 7):
        image = blob(sigma)
        dog = scales(detect_dog(image, 1))[0]
        assert dog == pytest.approx(0.89 * sigma, rel=0.03)
        for detect in OURS:
            assert scales(detect(image, 1))[0] == pytest.approx(dog, rel=0.08)


def test_a_blob_between_pixels_is_found_once() -> None:
    assert len(detect_hessian(blob(4, 120.5, 99.5))) == 1


def test_stronger_blobs_come_first() -> None:
    image = np.hstack([blob(5, height=height) for height in (40, 120, 80)])
    np.testing.assert_allclose(detect_hessian(image)[:, 0, 2] // 240, [1, 2, 0])
    assert len(detect_hessian(image, 2)) == 2


def test_corners_of_a_checkerboard_are_found_and_its_edges_are_not() -> None:
    """Corners lie between pixels, at 31.5, 63.5, … The gradient vanishes at a crossing of edges, so that the
    response is largest around it, within the frame's scale."""
    y, x = np.mgrid[:256, :256] // 32
    detected = detect_harris(np.where((x + y) % 2, 190, 60).astype(np.uint8))
    small = detected[scales(detected) < 4]
    corners = np.stack(np.meshgrid(np.arange(1, 8), np.arange(1, 8)), -1).reshape(-1, 2) * 32 - 0.5
    distance = np.linalg.norm(corners[:, None] - small[None, :, :, 2], axis=2) / scales(small)
    assert distance.min(1).max() < 1
    assert distance.min(0).max() < 1.5


@pytest.mark.parametrize(("stretch", "degrees"), [(1.4, 0), (2, 30), (3, 150)])
@pytest.mark.parametrize("sigma", [3, 7])
def test_affine_shape_is_that_of_a_stretched_blob(stretch: float, degrees: float, sigma: float) -> None:
    image = blob(sigma, stretch=stretch, degrees=degrees)
    plain = detect_hessian(image, 1)
    shaped = affine_shape(image, plain)
    axes, lengths, _ = np.linalg.svd(shaped[0, :, :2])
    assert lengths[0] / lengths[1] == pytest.approx(stretch, rel=0.06)
    assert angle_errors(2 * np.degrees(np.arctan2(axes[1:, 0], axes[:1, 0])), 2 * degrees) < 4
    np.testing.assert_allclose(scales(shaped), scales(plain), rtol=1e-3)
    np.testing.assert_array_equal(shaped[:, :, 2], plain[:, :, 2])


def test_frames_on_an_edge_have_no_affine_shape() -> None:
    image = np.full((100, 100), 50, np.uint8)
    image[:, 50:] = 200
    on_edge = np.array([[[3, 0, 49.5], [0, 3, 50]]], np.float32)
    assert affine_shape(image, on_edge).shape == (0, 2, 3)
    assert affine_shape(np.full((100, 100), 50, np.uint8), on_edge).shape[1:] == (2, 3)
    assert affine_shape(image, on_edge[:0]).shape == (0, 2, 3)


def test_the_x_axis_lies_along_the_gradient() -> None:
    """The gradient of a ramp is known; the result does not depend on the initial rotation."""
    rows, columns = np.mgrid[:120, :120]
    for degrees in (0, 37, 95, 180, 263):
        c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
        ramp = np.round(128 + 0.9 * (c * (columns - 60) + s * (rows - 60))).astype(np.uint8)
        initial = np.radians(np.arange(0, 360, 25))
        rotated = np.array([[[4 * np.cos(a), -4 * np.sin(a), 60], [4 * np.sin(a), 4 * np.cos(a), 60]] for a in initial])
        assert angle_errors(angles(orient(ramp, rotated.astype(np.float32))), degrees).max() < 2


def test_orientations_agree_with_sifts(photo: Grey) -> None:
    """SIFT may give a point several orientations; ours is nearly always close to one of them."""
    sift = detect_dog(photo)
    points, which = np.unique(sift[:, :, 2], axis=0, return_inverse=True)
    strongest = sift[np.unique(which, return_index=True)[1]]
    ours = angles(orient(photo, strongest))
    nearest = np.array([angle_errors(angles(sift[which == k]), ours[k]).min() for k in range(len(points))])
    assert np.median(nearest) < 6
    assert np.mean(nearest < 20) > 0.75


@pytest.mark.parametrize("detect", OURS)
def test_frames_rotate_with_the_image(detect: detectors.Detector, photo: Grey) -> None:
    """By 90 degrees clockwise: (x, y) maps to (H - 1 - y, x). Octaves keep the grid if the last row is even."""
    image = photo[:385, :449]
    plain, rotated = detect(image, 150), detect(np.ascontiguousarray(np.rot90(image, -1)), 200)
    mapped = transform_frames(plain, np.array([[0, -1, 384], [1, 0, 0], [0, 0, 1.0]]))
    distance = np.linalg.norm(mapped[:, None, :, 2] - rotated[None, :, :, 2], axis=2)
    distance += np.abs(np.log2(scales(mapped)[:, None] / scales(rotated)))
    partner = distance.argmin(1)
    close = distance[np.arange(len(mapped)), partner] < 0.3
    assert close.mean() > 0.9
    difference = angle_errors(angles(mapped), angles(rotated[partner]))[close]
    assert np.mean(difference < 5) > 0.9


@pytest.mark.parametrize("detect", OURS)
def test_frames_move_with_the_image(detect: detectors.Detector, photo: Grey) -> None:
    """Frames away from the borders are shifted by 64 pixels with the image, in the octaves that keep the grid."""
    cropped, full = detect(photo[64:448, 64:448], None), detect(photo[:448, :448], None)
    small = cropped[(scales(cropped) < 8) & (np.abs(cropped[:, :, 2] - 192).max(1) < 100)]
    distance = np.linalg.norm(small[:, None, :, 2] + 64 - full[None, :, :, 2], axis=2)
    assert len(small) > 50
    assert np.mean(distance.min(1) < 0.05) > 0.98
    partner = full[distance.argmin(1)]
    assert np.mean(np.abs(partner[:, :, :2] - small[:, :, :2]).max((1, 2)) < 0.05 * scales(small)) > 0.97


@pytest.mark.parametrize("detect", DETECTORS.values(), ids=DETECTORS)
@pytest.mark.parametrize("shape", [(1, 1), (2, 50), (11, 300), (64, 64), (13, 12)])
def test_nothing_is_found_in_tiny_or_flat_images(detect: detectors.Detector, shape: tuple[int, int]) -> None:
    detected = detect(np.full(shape, 128, np.uint8), None)
    assert detected.shape == (0, 2, 3)
    assert detected.dtype == np.float32


@pytest.mark.parametrize("detect", OURS)
def test_large_images_are_halved_and_frames_scaled_back(
    detect: detectors.Detector, photo: Grey, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = photo[:256, :256]
    plain = detect(image, 100)
    monkeypatch.setattr(frames, "MAX_DETECTION_PIXELS", image.size)
    detected = detect(image.repeat(2, 0).repeat(2, 1), 100)
    np.testing.assert_allclose(detected[:, :, :2], 2 * plain[:, :, :2], rtol=1e-5)
    np.testing.assert_allclose(detected[:, :, 2], 2 * plain[:, :, 2] + 0.5, rtol=1e-5)


def test_detection_is_the_same_each_time_and_a_limit_takes_the_first(photo: Grey) -> None:
    for detect in (detect_harris, detect_hessian):
        whole = detect(photo)
        np.testing.assert_array_equal(detect(photo, 100), whole[:100])
        np.testing.assert_array_equal(detect(photo), whole)


def repeatability(
    detect: detectors.Detector, first: Grey, second: Grey, homography: Homography, error: float = 0.5
) -> float:
    """Compute the repeatability of the 1,000 strongest frames per image, with ellipses at an extent of 3."""
    detected = detect(first, 1000), detect(second, 1000)
    return find_overlaps(detected, (first.shape, second.shape), homography, enlarge=3).repeatability(error)


def slanted(photo: Grey, degrees: float) -> tuple[Grey, Homography]:
    """Return the photo compressed by the cosine along an oblique axis, and the homography to it."""
    c, s = np.cos(np.pi / 5), np.sin(np.pi / 5)
    rotation = np.array([[c, -s], [s, c]])
    shape = rotation @ np.diag([np.cos(np.radians(degrees)), 1]) @ rotation.T
    middle = (np.array(photo.shape[::-1]) - 1) / 2
    homography = np.vstack([np.column_stack([shape, middle - shape @ middle]), [0, 0, 1]])
    grow = np.array([[4, 0, 1.5], [0, 4, 1.5], [0, 0, 1]])
    height, width = photo.shape
    large = cv2.warpPerspective(photo, grow @ homography, (4 * width, 4 * height), borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(cv2.resize(large, (width, height), interpolation=cv2.INTER_AREA), np.uint8), homography


@pytest.mark.parametrize("name", ["harris", "hessian"])
def test_affine_shape_raises_repeatability_under_slant(name: str, photo: Grey) -> None:
    """From 60 degrees on, circles of the correct size overlap by less than half for any detector."""
    for degrees, error, gain in ((60, 0.4, 1.2), (70, 0.5, 2)):
        view, homography = slanted(photo, degrees)
        plain, affine = (
            repeatability(DETECTORS[kind], photo, view, homography, error) for kind in (name, f"{name}-affine")
        )
        print(f"{degrees} degrees, error < {error}: {name} {plain:.3f}, with affine shape {affine:.3f}")
        assert affine > max(0.15, gain * plain)


def kornia_detector(name: str) -> detectors.Detector:
    response = kornia.feature.CornerHarris(0.05) if name == "harris" else kornia.feature.BlobHessian()
    detector = kornia.feature.ScaleSpaceDetector(1000, resp_module=response, mr_size=1.0)

    def detect(image: Grey, _limit: int | None) -> Frames:
        with torch.no_grad():
            return np.asarray(detector(torch.tensor(image)[None, None].float() / 255)[0][0], np.float32)

    return detect


@pytest.mark.parametrize("scene", ["graf", "boat"])
@pytest.mark.parametrize("name", ["harris", "hessian"])
def test_detectors_repeat_on_real_views(name: str, scene: str, oxford: Path) -> None:
    """The bounds are far below the reached values: they detect a broken detector and are not for tuning."""
    sequence = read_sequence(oxford / scene)
    pair = read_grey(sequence.images[0]), read_grey(sequence.images[2]), sequence.homographies[2]
    plain, affine, kornias = (
        repeatability(detect, *pair) for detect in (DETECTORS[name], DETECTORS[f"{name}-affine"], kornia_detector(name))
    )
    print(f"{scene} 1-3, {name}: {plain:.3f}, with affine shape {affine:.3f}, kornia's {kornias:.3f}")
    assert min(plain, affine) > 0.8 * kornias


def test_frames_follow_the_device_of_the_pyramid(photo: Grey) -> None:
    pyramid = Pyramid(photo, "cpu")
    detected = detect_hessian(photo, 50)
    np.testing.assert_array_equal(orient(pyramid, detected), orient(photo, detected))
    np.testing.assert_array_equal(affine_shape(pyramid, detected), affine_shape(photo, detected))
