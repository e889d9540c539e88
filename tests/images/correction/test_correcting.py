import numpy as np
import pytest
import torch

from doap.geometry.ellipses import scales
from doap.images.affine_shape import adapt_shapes, orient
from doap.images.correction import correcting
from doap.images.correction.correcting import correct_frames
from doap.images.detection import detect
from doap.images.detectors import DETECTORS
from doap.images.extraction import Pyramid
from doap.images.frames import detect_dog
from doap.networks.frames import FrameNetwork, FrameSettings
from doap.types import Frames, Grey


def random_network(corrections: str = "full", start: str = "detected") -> FrameNetwork:
    network = FrameNetwork(FrameSettings.model_validate({"width": 4, "corrections": corrections, "start": start}))
    torch.nn.init.normal_(network.prediction.weight, std=0.3)
    return network.requires_grad_(False).eval()


def test_the_initial_network_changes_nothing(photo: Grey) -> None:
    frames = detect_dog(photo, 100)
    corrected = correct_frames(Pyramid(photo), frames, FrameNetwork(FrameSettings(orientation="predicted")).eval())
    np.testing.assert_allclose(corrected, frames, rtol=1e-6)
    assert corrected is not frames
    # A peak of the gradients is near to the orientation of DoG frames, which is one of another histogram.
    oriented = correct_frames(Pyramid(photo), frames, FrameNetwork().eval())
    shapes, before = oriented[:, :, :2], frames[:, :, :2]
    np.testing.assert_allclose(shapes @ shapes.mT, before @ before.mT, rtol=1e-3, atol=1e-3)
    cosines = (shapes * before).sum((1, 2)) / (2 * scales(frames) ** 2)
    assert np.median(cosines) > 0.98


def test_chunks_give_the_same_frames(photo: Grey, monkeypatch: pytest.MonkeyPatch) -> None:
    frames, network = detect_dog(photo, 90), random_network()
    whole = correct_frames(Pyramid(photo), frames, network)
    monkeypatch.setattr(correcting, "CHUNK_SIZE", 17)
    np.testing.assert_allclose(correct_frames(Pyramid(photo), frames, network), whole, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(whole[:, :, 2], frames[:, :, 2])
    assert (np.abs(whole - frames)[:, :, :2].max((1, 2)) > 1e-3).all()


def test_frames_turn_with_the_image(photo: Grey) -> None:
    frames, network = detect_dog(photo, 60), random_network()
    turned = np.ascontiguousarray(np.rot90(photo, 2))
    moved = -frames
    moved[:, :, 2] += np.array(photo.shape[::-1], np.float32) - 1
    first, second = (correct_frames(Pyramid(i), f, network) for i, f in ((photo, frames), (turned, moved)))
    np.testing.assert_allclose(-second[:, :, :2], first[:, :, :2], atol=0.05 * float(scales(first).max()))


def degenerate_frames() -> Frames:
    return np.array(
        [
            [[1, 0, 5], [0, 1, 5]],
            [[0, 0, 5], [0, 0, 5]],  # no area
            [[1, 2, 5], [2, 4, 5]],  # a line
            [[np.nan, 0, 5], [0, 1, 5]],
            [[1, 0, np.inf], [0, 1, 5]],
            [[1e-30, 0, 5], [0, 1e-30, 5]],
            [[1e30, 0, 5], [0, 1e30, 5]],
            [[3, 0, -400], [0, 3, 9000]],  # outside
            [[-1, 0, 5], [0, 1, 5]],  # mirrored
        ],
        np.float32,
    )


@pytest.mark.parametrize("start", ["detected", "baumberg"])
@pytest.mark.parametrize("corrections", ["full", "shape"])
@pytest.mark.parametrize("shape", [(1, 1), (20, 20), (3, 200)])
def test_degenerate_frames_and_tiny_images(shape: tuple[int, int], corrections: str, start: str) -> None:
    image = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    frames = degenerate_frames()
    corrected = correct_frames(Pyramid(image), frames, random_network(corrections, start))
    assert corrected.shape == frames.shape
    finite = np.isfinite(frames).all((1, 2))
    assert np.isfinite(corrected[finite]).all()
    np.testing.assert_array_equal(corrected[:, :, 2], frames[:, :, 2])
    np.testing.assert_array_equal(corrected[[1, 3, 4]], frames[[1, 3, 4]])
    if corrections == "full" and start == "detected":
        np.testing.assert_array_equal(corrected[2], frames[2])
        assert np.linalg.det(corrected[[0, 7], :, :2]).min() > 0
        assert np.linalg.det(corrected[8, :, :2]) < 0
    assert correct_frames(Pyramid(image), frames[:0], random_network(corrections, start)).shape == (0, 2, 3)


def test_networks_can_start_from_baumbergs_iteration(photo: Grey) -> None:
    frames, pyramid = detect_dog(photo, 60), Pyramid(photo)
    network = FrameNetwork(FrameSettings(start="baumberg", orientation="predicted")).eval()
    shaped, converged = adapt_shapes(pyramid, frames)
    expected = orient(pyramid, np.where(converged[:, None, None], shaped, frames))
    np.testing.assert_allclose(correct_frames(pyramid, frames, network), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", DETECTORS)
def test_every_keypoint_of_every_detector_has_one_corrected_frame(name: str, photo: Grey) -> None:
    crop = np.ascontiguousarray(photo[100:300, 150:400])
    upright, learned = (detect(crop, name, shape, max_keypoints=40) for shape in ("upright", "learned"))
    assert len(learned) == 40
    assert name != "dog" or len(np.unique(learned.frames[:, :, 2], axis=0)) == 40  # of several orientations, one
    np.testing.assert_array_equal(learned.frames[:, :, 2], upright.frames[:, :, 2])
    np.testing.assert_array_equal(learned.responses, upright.responses)
    assert np.isfinite(learned.frames).all()
    assert np.abs(learned.frames - upright.frames).max() > 0.01


def test_small_and_empty_images_have_learned_frames() -> None:
    random = np.random.default_rng(0)
    for shape in ((20, 20), (1, 1), (20, 300)):
        found = detect(random.integers(0, 256, shape).astype(np.uint8), frames="learned")
        assert np.isfinite(found.frames).all()
    assert len(detect(np.zeros((64, 64), np.uint8), frames="learned")) == 0


def test_frames_turn_to_the_nearest_of_several_peaks() -> None:
    # A corner of two edges of equal contrast: gradients point along x and along y.
    image = np.zeros((80, 80), np.uint8)
    image[:40, :40] = 200
    angles = np.radians([-5, 20, 80, 100])
    frames = np.zeros((4, 2, 3), np.float32)
    for frame, angle in zip(frames, np.pi + angles, strict=True):  # the gradients point to the bright quarter
        c, s = 4 * np.cos(angle), 4 * np.sin(angle)
        frame[:] = [[c, -s, 39.5], [s, c, 39.5]]
    turned = orient(image, frames, nearest=True)
    found = np.degrees(np.arctan2(turned[:, 1, 0], turned[:, 0, 0])) % 360
    np.testing.assert_allclose(found, [180, 180, 270, 270], atol=20)  # smoothed towards the diagonal
