from typing import Any

import cv2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from doap.images import frames
from doap.images.dog import detector, orientation, scale_space
from doap.images.dog.detector import find_dog_batch
from doap.images.frames import Detections, first_of_each_ellipse
from doap.types import Grey


def opencv(image: Grey, contrast: float = 0.04) -> NDArray[np.float64]:
    """Return x, y, scale, angle and response of OpenCV's keypoints, (N, 5)."""
    keypoints = cv2.SIFT.create(0, 3, contrast, enable_precise_upscale=True).detect(image, None)
    return np.array([(*k.pt, k.size / 2, k.angle, k.response) for k in keypoints])


def share_reproduced(actual: Detections, expected: NDArray[np.float64]) -> float:
    """Return the share of keypoints with a frame within 0.1 pixels, 1 % of scale, 1 degree and 1 % of response."""
    x, y = actual.frames[:, :, 2].T
    scale = np.hypot(actual.frames[:, 0, 0], actual.frames[:, 1, 0])
    angle = np.degrees(np.arctan2(actual.frames[:, 1, 0], actual.frames[:, 0, 0]))
    close = np.hypot(x - expected[:, :1], y - expected[:, 1:2]) < 0.1
    close &= np.abs(scale / expected[:, 2:3] - 1) < 0.01
    close &= np.abs((angle - expected[:, 3:4] + 180) % 360 - 180) < 1
    close &= np.abs(actual.responses / expected[:, 4:5] - 1) < 0.01
    return float(close.any(1).mean())


@pytest.mark.parametrize(("rows", "columns"), [(slice(100, 300), slice(150, 400)), (slice(7, 98), slice(200, 333))])
def test_keypoints_are_opencvs(rows: slice, columns: slice, photo: Grey) -> None:
    image = np.ascontiguousarray(photo[rows, columns])
    (actual,) = find_dog_batch(torch.from_numpy(image)[None])
    expected = opencv(image)
    share = share_reproduced(actual, expected)
    print(f"{len(expected)} keypoints, {len(actual)} found, {share:.4f} reproduced")
    assert share > 0.99
    assert abs(len(actual) - len(expected)) <= 0.01 * len(expected)
    assert (np.diff(actual.responses) <= 0).all()


def test_weaker_keypoints_are_opencvs(photo: Grey) -> None:
    image = np.ascontiguousarray(photo[100:300, 150:400])
    (actual,) = find_dog_batch(torch.from_numpy(image)[None], min_response=0.02 / 3)
    expected = opencv(image, contrast=0.02)
    assert len(expected) > 1.1 * len(opencv(image))
    assert share_reproduced(actual, expected) > 0.99
    assert abs(len(actual) - len(expected)) <= 0.01 * len(expected)


def test_every_octave_takes_part() -> None:
    """Noise of all scales in an image with odd sides."""
    random = np.random.default_rng(0)
    values = np.full((187, 251), 128.0)
    for cells in (3, 6, 12, 24, 48, 96):
        values += cv2.resize(random.normal(0, 20, (cells, cells)), (251, 187), interpolation=cv2.INTER_CUBIC)
    image = np.asarray(values.round().clip(0, 255), np.uint8)
    (actual,) = find_dog_batch(torch.from_numpy(image)[None])
    expected = opencv(image)
    assert expected[:, 2].max() > 8 * expected[:, 2].min()
    assert share_reproduced(actual, expected) > 0.99


@pytest.mark.parametrize("shape", [(3, 3), (6, 7), (11, 40), (16, 16), (3, 200)])
def test_small_images_work(shape: tuple[int, int], photo: Grey) -> None:
    image = np.ascontiguousarray(photo[200 : 200 + shape[0], 240 : 240 + shape[1]])
    (actual,) = find_dog_batch(torch.from_numpy(image)[None])
    expected = opencv(image)
    assert len(actual) == len(expected)
    assert not len(expected) or share_reproduced(actual, expected) == 1


def test_a_batch_equals_its_images_however_it_is_divided(photo: Grey, monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.from_numpy(np.stack([photo[:90, :110], photo[100:190, 200:310], photo[300:390, 250:360]]))
    single = [find_dog_batch(image[None])[0] for image in images]
    again = find_dog_batch(images[:1])[0]
    np.testing.assert_array_equal(again.frames, single[0].frames)
    monkeypatch.setattr(orientation, "CHUNK_SIZE", 13)
    for pixels in (10**9, 20_000):
        monkeypatch.setattr(frames, "MAX_DETECTION_PIXELS", pixels)
        for actual, expected in zip(find_dog_batch(images), single, strict=True):
            # The order of additions in a convolution depends on the size of the batch.
            np.testing.assert_allclose(actual.frames, expected.frames, atol=1e-3)
            np.testing.assert_allclose(actual.responses, expected.responses, rtol=1e-4)
    assert sum(map(len, single)) > 20


def test_a_limit_gives_the_frames_of_the_strongest_keypoints(photo: Grey, monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.from_numpy(np.stack([photo[100:190, 200:310], np.zeros((90, 110)), photo[300:390, 250:360]]))
    everything = find_dog_batch(images)
    for limit in (1, 5, 20):
        for few, all_ in zip(find_dog_batch(images, limit), everything, strict=True):
            assert len(few) >= min(limit, len(all_))
            np.testing.assert_array_equal(few.frames, all_.frames[: len(few)])
            assert len(first_of_each_ellipse(few.frames)) <= limit
    # The strongest keypoint of each image without an orientation.
    find = orientation.find_orientations

    def without_first(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        rows, degrees = find(*arguments)
        return rows[rows > 0], degrees[rows > 0]

    monkeypatch.setattr(detector, "find_orientations", without_first)
    (few, *_) = find_dog_batch(images[:1], 5)
    assert len(few) >= 5


def test_levels_are_gaussian_blurs_of_the_doubled_image(photo: Grey) -> None:
    image = np.ascontiguousarray(photo[100:181, 200:293]).astype(np.float32)
    half = np.array([[0.5, 0, 0], [0, 0.5, 0]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    doubled = cv2.warpAffine(image, half, (186, 162), flags=flags, borderMode=cv2.BORDER_REFLECT)
    space = scale_space.build_scale_space(torch.from_numpy(image)[None]).octaves
    for level, sigma in zip(space[0][0].numpy(), 1.6 * 2 ** (np.arange(6) / 3), strict=True):
        expected = cv2.GaussianBlur(doubled, (0, 0), np.sqrt(sigma**2 - 1))
        # Several blurs of truncated Gaussians differ slightly from a single one.
        assert np.abs(level - expected).max() < 0.2
    assert [tuple(levels.shape[2:]) for levels in space] == [(162, 186), (81, 93), (40, 46), (20, 23)]
    np.testing.assert_allclose(space[1][0, 0, :, 0], space[0][0, 3, 0:162:2, 0], atol=1e-5)
