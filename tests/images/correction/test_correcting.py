from itertools import pairwise

import numpy as np
import pytest
import torch

from doap.geometry.ellipses import scales
from doap.images.affine_shape import adapt_shapes, orient, orient_all
from doap.images.correction import correcting
from doap.images.correction.correcting import correct_frames
from doap.images.detection import detect
from doap.images.detectors import DETECTORS
from doap.images.extraction import Pyramid
from doap.images.frames import Detections, detect_dog
from doap.networks.frames import FrameNetwork, FrameSettings
from doap.types import Frames, Grey
from support.frame_measures import ellipses, smallest_turn


def random_network(corrections: str = "full", start: str = "detected") -> FrameNetwork:
    network = FrameNetwork(FrameSettings.model_validate({"width": 4, "corrections": corrections, "start": start}))
    torch.nn.init.normal_(network.prediction.weight, std=0.3)
    return network.requires_grad_(False).eval()


def test_the_initial_network_changes_nothing(photo: Grey) -> None:
    frames = detect_dog(photo, 100)
    network = FrameNetwork(FrameSettings(orientation="predicted")).eval()
    corrected, rows = correct_frames(Pyramid(photo), frames, network)
    np.testing.assert_allclose(corrected, frames, rtol=1e-6)
    np.testing.assert_array_equal(rows, np.arange(len(frames)))
    assert corrected is not frames
    # A peak of the gradients is near to the orientation of DoG frames, which is one of another histogram.
    oriented, rows = correct_frames(Pyramid(photo), frames, FrameNetwork().eval())
    np.testing.assert_array_equal(np.unique(rows), np.arange(len(frames)))
    assert len(rows) > len(frames)
    np.testing.assert_allclose(ellipses(oriented), ellipses(frames[rows]), rtol=1e-3, atol=1e-3)
    cosines = (oriented * frames[rows])[:, :, :2].sum((1, 2)) / (2 * scales(frames[rows]) ** 2)
    assert np.median([cosines[rows == row].max() for row in range(len(frames))]) > 0.98


def test_chunks_give_the_same_frames(photo: Grey, monkeypatch: pytest.MonkeyPatch) -> None:
    frames, network = detect_dog(photo, 90), random_network()
    whole, rows = correct_frames(Pyramid(photo), frames, network)
    monkeypatch.setattr(correcting, "CHUNK_SIZE", 17)
    chunked, chunked_rows = correct_frames(Pyramid(photo), frames, network)
    np.testing.assert_allclose(chunked, whole, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(chunked_rows, rows)
    np.testing.assert_array_equal(whole[:, :, 2], frames[rows, :, 2])
    assert (np.abs(whole - frames[rows])[:, :, :2].max((1, 2)) > 1e-3).all()


def test_frames_turn_with_the_image(photo: Grey) -> None:
    frames, network = detect_dog(photo, 60), random_network()
    turned = np.ascontiguousarray(np.rot90(photo, 2))
    moved = -frames
    moved[:, :, 2] += np.array(photo.shape[::-1], np.float32) - 1
    first, rows = correct_frames(Pyramid(photo), frames, network)
    second, turned_rows = correct_frames(Pyramid(turned), moved, network)
    np.testing.assert_array_equal(turned_rows, rows)
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
    corrected, rows = correct_frames(Pyramid(image), frames, random_network(corrections, start))
    assert (np.diff(rows) >= 0).all()
    np.testing.assert_array_equal(np.unique(rows), np.arange(len(frames)))
    finite = np.asarray(np.isfinite(frames).all((1, 2)))
    assert np.isfinite(corrected[finite[rows]]).all()
    np.testing.assert_array_equal(corrected[:, :, 2], frames[rows, :, 2])
    np.testing.assert_array_equal(corrected[np.isin(rows, [1, 2, 3, 4])], frames[[1, 2, 3, 4]])
    if corrections == "full" and start == "detected":
        assert np.linalg.det(corrected[np.isin(rows, [0, 7]), :, :2]).min() > 0
        assert np.linalg.det(corrected[rows == 8, :, :2]).max() < 0
    none, no_rows = correct_frames(Pyramid(image), frames[:0], random_network(corrections, start))
    assert none.shape == (0, 2, 3)
    assert no_rows.shape == (0,)


def test_networks_can_start_from_baumbergs_iteration(photo: Grey) -> None:
    frames, pyramid = detect_dog(photo, 60), Pyramid(photo)
    network = FrameNetwork(FrameSettings(start="baumberg", orientation="predicted")).eval()
    shaped, converged = adapt_shapes(pyramid, frames)
    expected = orient(pyramid, np.where(converged[:, None, None], shaped, frames))
    np.testing.assert_allclose(correct_frames(pyramid, frames, network)[0], expected, rtol=1e-5, atol=1e-6)
    peaks, rows = correct_frames(pyramid, frames, FrameNetwork(FrameSettings(start="baumberg")).eval())
    all_expected, expected_rows = orient_all(pyramid, expected)
    np.testing.assert_allclose(peaks, all_expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(rows, expected_rows)


def test_networks_of_the_shape_alone_are_always_oriented_by_the_peaks(photo: Grey) -> None:
    frames, pyramid = detect_dog(photo, 60), Pyramid(photo)
    settings = FrameSettings(corrections="shape", orientation="predicted")
    corrected, rows = correct_frames(pyramid, frames, FrameNetwork(settings).eval())
    expected, expected_rows = orient_all(pyramid, frames)
    np.testing.assert_allclose(corrected, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(rows, expected_rows)


def keypoint_groups(found: Detections) -> list[Detections]:
    """Split detections where centre, response or ellipse change."""
    shapes = ellipses(found.frames)
    areas = np.linalg.det(shapes) ** 0.5
    is_other = (found.frames[1:, :, 2] != found.frames[:-1, :, 2]).any(1)
    is_other |= found.responses[1:] != found.responses[:-1]
    is_other |= np.abs(np.diff(shapes, axis=0)).max((1, 2)) > 1e-4 * areas[1:]
    starts = [0, *(np.flatnonzero(is_other) + 1), len(found)]
    return [found[slice(*bounds)] for bounds in pairwise(starts)]


@pytest.mark.parametrize("name", DETECTORS)
def test_every_keypoint_of_every_detector_has_one_corrected_ellipse(name: str, photo: Grey) -> None:
    crop = np.ascontiguousarray(photo[100:300, 150:400])
    upright, learned = (detect(crop, name, shape) for shape in ("upright", "learned"))
    assert np.isfinite(learned.frames).all()
    assert (np.diff(learned.responses) <= 0).all()
    groups = keypoint_groups(learned)
    firsts = np.stack([group.frames[0] for group in groups])
    np.testing.assert_array_equal(firsts[:, :, 2], upright.frames[:, :, 2])
    np.testing.assert_array_equal([group.responses[0] for group in groups], upright.responses)
    assert np.abs(ellipses(firsts) - ellipses(upright.frames)).max() > 0.01
    assert 1.05 < len(learned) / len(upright) < 1.6
    assert min(smallest_turn(group.frames) for group in groups if len(group) > 1) > 10


@pytest.mark.parametrize("name", DETECTORS)
def test_the_frames_of_the_strongest_keypoints_are_kept(name: str, photo: Grey) -> None:
    crop = np.ascontiguousarray(photo[100:300, 150:400])
    everything = detect(crop, name, "learned")
    for limit in (1, 40):
        few = detect(crop, name, "learned", max_keypoints=limit)
        assert len(few) == limit
        np.testing.assert_array_equal(few.frames[:, :, 2], everything.frames[:limit, :, 2])
        np.testing.assert_allclose(few.frames, everything.frames[:limit], rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(few.responses, everything.responses[:limit])


def test_small_and_empty_images_have_learned_frames() -> None:
    random = np.random.default_rng(0)
    for shape in ((20, 20), (1, 1), (20, 300)):
        actual = detect(random.integers(0, 256, shape).astype(np.uint8), frames="learned")
        assert np.isfinite(actual.frames).all()
    assert len(detect(np.zeros((64, 64), np.uint8), frames="learned")) == 0
