from functools import partial
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from doap.errors import DoapError
from doap.extents import OPENCV_FACTORS
from doap.geometry.ellipses import scales
from doap.images import detection, frames
from doap.images.affine_shape import affine_shape, orient_all
from doap.images.detection import OPENCV_NAMES, Detections, detect, detect_batch, detector_name
from doap.images.detectors import DETECTORS
from doap.images.dog.detector import find_dog_batch
from doap.images.frames import make_upright
from doap.types import Grey
from support.frame_measures import ellipses

FAST = ["dog", "harris", "hessian", "hessian-affine"]


@pytest.fixture(scope="module")
def crop(photo: Grey) -> Grey:
    return np.ascontiguousarray(photo[100:300, 150:400])


def test_methods_of_opencvs_detectors_have_their_names() -> None:
    moved = cv2 if hasattr(cv2, "AKAZE") else cv2.xfeatures2d  # in OpenCV 5
    detectors = {
        "orb": cv2.ORB.create(),
        "akaze": moved.AKAZE.create(),
        "brisk": moved.BRISK.create(),
        "gftt": cv2.GFTTDetector.create(),
        "fast": cv2.FastFeatureDetector.create(),
        "dog": cv2.SIFT.create(),
    }
    assert {name: detector_name(detector.detect) for name, detector in detectors.items()} == {n: n for n in detectors}
    assert set(OPENCV_NAMES.values()) == set(OPENCV_FACTORS) == set(detectors) - {"dog"}
    assert [detector_name(name) for name in DETECTORS] == list(DETECTORS)
    others: list[Any] = [partial(detectors["orb"].detect, mask=None), [].append, len]
    assert [detector_name(other) for other in others] == ["dog"] * 3


@pytest.mark.parametrize("name", DETECTORS)
def test_named_detectors_return_their_frames_with_responses(name: str, crop: Grey) -> None:
    for limit in (None, 40):
        actual = detect(crop, name, max_keypoints=limit)
        np.testing.assert_array_equal(actual.frames, DETECTORS[name](crop, limit))
        assert actual.frames.dtype == actual.responses.dtype == np.float32
        assert actual.responses.shape == (len(actual),)
        assert (np.diff(actual.responses) <= 0).all()
    assert len(detect(torch.from_numpy(crop).float(), name, max_keypoints=40)) == 40


def test_dog_responses_are_opencvs(crop: Grey) -> None:
    keypoints = cv2.SIFT.create(enable_precise_upscale=True).detect(crop, None)
    expected = np.sort([k.response for k in keypoints])[::-1]
    np.testing.assert_array_equal(detect(crop).responses, expected.astype(np.float32))


def test_upright_frames_are_the_keypoints_without_their_orientations(crop: Grey) -> None:
    oriented, upright = detect(crop), detect(crop, frames="upright")
    keypoints = np.column_stack([oriented.frames[:, :, 2], scales(oriented.frames).round(3)])
    assert len(upright) == len(np.unique(keypoints, axis=0)) < len(oriented)
    np.testing.assert_array_equal(upright.frames[:, 0, 1], 0)
    np.testing.assert_allclose(upright.frames[:, 1, 0], 0, atol=1e-5)
    assert len(detect(crop, frames="upright", max_keypoints=100)) == 100
    affine = detect(crop, "hessian-affine", frames="upright")
    np.testing.assert_array_equal(affine.frames, make_upright(DETECTORS["hessian-affine"](crop, None)))


def test_affine_frames_are_adapted_and_oriented(crop: Grey) -> None:
    actual = detect(crop, frames="baumberg", max_keypoints=60)
    assert 30 < len(actual) <= 60
    upright = detect(crop, frames="upright", max_keypoints=78)
    shaped = affine_shape(crop, upright.frames)[:60]
    expected, rows = orient_all(crop, shaped)
    np.testing.assert_array_equal(actual.frames, expected[:60])
    is_kept = (upright.frames[None, :, :, 2] == shaped[:, None, :, 2]).all(2)
    np.testing.assert_array_equal(actual.responses, upright.responses[is_kept.argmax(1)][rows[:60]])
    assert (np.diff(actual.responses) <= 0).all()
    assert len(np.unique(rows[:60])) < 60
    for name in ("harris", "harris-affine"):
        np.testing.assert_array_equal(
            detect(crop, name, frames="baumberg", max_keypoints=50).frames, DETECTORS["harris-affine"](crop, 50)
        )
    own = DETECTORS["vlfeat-harris-affine"](crop, 30)
    turned = detect(crop, "vlfeat-harris-affine", frames="baumberg", max_keypoints=30).frames
    np.testing.assert_allclose(ellipses(turned), ellipses(own), rtol=1e-4, atol=1e-3)
    assert (turned[:, 0, 1] != 0).any()


@pytest.mark.parametrize("name", FAST)
def test_the_strongest_are_selected_after_mask_and_response(name: str, crop: Grey) -> None:
    everything = detect(crop, name)
    mask = np.zeros(crop.shape, np.uint8)
    mask[40:160, 30:220] = 7
    bound = float(np.quantile(everything.responses, 0.3))
    x, y = np.rint(everything.frames[:, :, 2]).astype(int).T
    expected = everything[(mask[y, x] > 0) & (everything.responses >= bound)]
    assert 10 < len(expected) < 0.8 * len(everything)
    actual = detect(crop, name, mask=mask, min_response=bound)
    np.testing.assert_array_equal(actual.frames, expected.frames)
    few = detect(crop, name, mask=torch.from_numpy(mask > 0), min_response=bound, max_keypoints=10)
    np.testing.assert_array_equal(few.frames, expected.frames[:10])
    assert len(detect(crop, name, mask=np.zeros(crop.shape, bool))) == 0
    assert len(detect(crop, name, min_response=1e9)) == 0


def test_a_lower_response_gives_weaker_dog_frames_too(crop: Grey) -> None:
    default, weaker = detect(crop), detect(crop, min_response=0.005)
    assert len(weaker) > 1.2 * len(default)
    assert 0.005 <= weaker.responses.min() < 0.006 < 0.0133 <= default.responses.min()
    np.testing.assert_array_equal(weaker.frames[: len(default)], default.frames)


def test_masks_apply_to_the_full_image_when_detection_halves_it(crop: Grey, monkeypatch: pytest.MonkeyPatch) -> None:
    large = crop.repeat(2, 0).repeat(2, 1)
    monkeypatch.setattr(frames, "MAX_DETECTION_PIXELS", crop.size)
    mask = np.zeros(large.shape, bool)
    mask[:, 250:] = True
    everything, right = detect(large, "hessian"), detect(large, "hessian", mask=mask)
    np.testing.assert_array_equal(right.frames, everything.frames[np.rint(everything.frames[:, 0, 2]) >= 250])


def test_a_function_can_be_the_detector(crop: Grey) -> None:
    orb = cv2.ORB.create(50)
    actual = detect(crop, lambda image: list(orb.detect(image, None)), max_keypoints=20)
    assert len(actual) == 20
    assert actual.responses[0] == max(k.response for k in orb.detect(crop, None))
    unoriented = detect(crop, lambda _: [cv2.KeyPoint(20, 30, 8), cv2.KeyPoint(40, 50, 6, 90, 2)])
    np.testing.assert_allclose(unoriented.frames, [[[0, -3, 40], [3, 0, 50]], [[4, 0, 20], [0, 4, 30]]], atol=1e-6)
    own = DETECTORS["dog"](crop, 30)[::-1]
    mask = np.ones(crop.shape, bool)
    mask[:, :100] = False
    kept = detect(crop, lambda _: own, mask=mask)
    np.testing.assert_array_equal(kept.frames, own[np.rint(own[:, 0, 2]) >= 100])
    assert len(detect(crop, lambda _: [])) == 0
    assert len(detect(crop, lambda _: np.zeros((0, 2, 3), np.float32), frames="baumberg")) == 0


def test_a_detector_cannot_change_the_image(crop: Grey) -> None:
    def erase(image: Grey) -> list[cv2.KeyPoint]:
        image[:] = 0
        return [cv2.KeyPoint(20, 30, 8)]

    before = crop.copy()
    assert len(detect(crop, erase)) == 1
    np.testing.assert_array_equal(crop, before)


def test_orientations_of_one_keypoint_are_merged_wherever_they_are(crop: Grey) -> None:
    keypoints = [cv2.KeyPoint(50, 60, 10, angle) for angle in (0, 33, 120)] + [cv2.KeyPoint(50, 60, 14, 5)]
    own = frames.frames_from_keypoints([keypoints[0], keypoints[3], keypoints[1], keypoints[2]])
    upright = detect(crop, lambda _: own, frames="upright")
    np.testing.assert_allclose(scales(upright.frames), [5, 7], rtol=1e-6)


@pytest.mark.parametrize("kind", ["upright", "baumberg", "learned"])
def test_orientations_of_a_custom_detector_are_replaced(kind: detection.FrameShape, crop: Grey) -> None:
    own = DETECTORS["dog"](crop, None)
    for limit in (60, None):
        actual = detect(crop, lambda _: own, frames=kind, max_keypoints=limit)
        np.testing.assert_array_equal(actual.frames, detect(crop, frames=kind, max_keypoints=limit).frames)
        assert limit is None or len(actual) <= limit


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (2, 2), (5, 300), (11, 12), (64, 64)])
@pytest.mark.parametrize("kind", ["detected", "upright", "baumberg", "learned"])
def test_tiny_and_flat_images_have_no_frames(shape: tuple[int, int], kind: detection.FrameShape) -> None:
    flat = np.full(shape, 200, np.uint8)
    for name in DETECTORS:
        actual = detect(flat, name, frames=kind)
        assert actual.frames.shape == (0, 2, 3)
        assert actual.responses.shape == (0,)
    assert len(find_dog_batch(torch.from_numpy(flat)[None])[0]) == 0


def test_wrong_arguments_are_refused_in_one_line(crop: Grey) -> None:
    wrong: list[tuple[str, dict[str, object]]] = [
        ("detector surf: unknown; choose one of dog, harris", {"detector": "surf"}),
        ("frame shape round: unknown; choose one of detected, upright, baumberg, learned", {"frames": "round"}),
        ("frame shape 'affine' was renamed; use 'baumberg'", {"frames": "affine"}),
        ("max_keypoints must be at least 0, or None for all, not -5", {"max_keypoints": -5}),
        ("the mask is 3x4 but the image 250x200 pixels; resize the mask", {"mask": np.ones((4, 3), bool)}),
        (r"must return \(N, 2, 3\) frames", {"detector": lambda _: np.zeros((4, 2))}),
        (r"must return \(N, 2, 3\) frames", {"detector": lambda _: [None]}),
        (
            "frame 1 of the detector is not finite",
            {"detector": lambda _: np.array([np.eye(2, 3), np.eye(2, 3) * np.nan])},
        ),
        ("frame 0 of the detector has no area", {"detector": lambda _: np.zeros((1, 2, 3))}),
        ("frame 0 of the detector has no area", {"detector": lambda _: [cv2.KeyPoint(5, 5, 0)]}),
        ("min_response needs", {"detector": lambda _: np.zeros((1, 2, 3)), "min_response": 0.1}),
    ]
    for message, arguments in wrong:
        with pytest.raises(DoapError, match=message) as error:
            detect(crop, **arguments)  # type: ignore[arg-type]
        assert "\n" not in str(error.value)
    for image in (np.zeros((3, 4, 5), np.uint8), np.zeros((0, 5), np.uint8)):
        with pytest.raises(DoapError, match="an image must be"):
            detect(image)
    assert len(detect(crop, max_keypoints=0)) == 0


def test_a_batch_equals_its_images(crop: Grey) -> None:
    images = torch.from_numpy(np.stack([crop, crop[::-1]]))
    mask = np.zeros(crop.shape, bool)
    mask[:80] = True
    actual = detect_batch(images, "hessian", max_keypoints=30, masks=[None, mask])
    for image, its, expected in zip(images, [None, mask], actual, strict=True):
        np.testing.assert_array_equal(detect(image, "hessian", max_keypoints=30, mask=its).frames, expected.frames)
    with pytest.raises(DoapError, match="2 images need as many masks, not 1"):
        detect_batch(images, masks=[mask])
    with pytest.raises(DoapError, match=r"must be \(B, H, W\)"):
        detect_batch(images[0])


@pytest.mark.parametrize(
    ("name", "kind"),
    [("dog", "baumberg"), ("dog", "learned"), ("hessian-affine", "detected"), ("vlfeat-harris-affine", "baumberg")],
)
@pytest.mark.parametrize("mode", ["autocast", "float64"])
def test_autocast_and_the_default_type_change_nothing(
    crop: Grey, name: str, kind: detection.FrameShape, mode: str
) -> None:
    expected = detect(crop, name, kind, max_keypoints=30)
    if mode == "autocast":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            actual = detect(crop, name, kind, max_keypoints=30)
            (batched,) = detect_batch(torch.from_numpy(crop)[None], name, kind, max_keypoints=30)
    else:
        torch.set_default_dtype(torch.float64)
        try:
            actual = detect(crop, name, kind, max_keypoints=30)
            (batched,) = detect_batch(torch.from_numpy(crop)[None], name, kind, max_keypoints=30)
        finally:
            torch.set_default_dtype(torch.float32)
    for one in (actual, batched):
        assert one.frames.dtype == np.float32
        np.testing.assert_allclose(one.frames, expected.frames, rtol=1e-4, atol=1e-4)


def test_tensors_on_a_device_are_detected_there(crop: Grey, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU plays the device: the same code runs on CUDA."""
    calls = []

    def find(images: torch.Tensor, limit: int | None, min_response: float) -> list[Detections]:
        calls.append((*images.shape, limit))
        return find_dog_batch(images, limit, min_response)

    monkeypatch.setattr(detection, "find_dog_batch", find)
    monkeypatch.setattr(detection, "DEVICE_TYPES", ("cpu",))
    small = np.ascontiguousarray(crop[:100, :120])
    image = torch.from_numpy(small)
    mask = np.zeros(small.shape, bool)
    mask[:, 30:] = True
    kinds: list[detection.FrameShape] = ["detected", "upright", "baumberg", "learned"]
    for kind in kinds:
        actual = detect(image, frames=kind, max_keypoints=40, mask=mask)
        expected = detect(small, frames=kind, max_keypoints=40, mask=mask)
        np.testing.assert_allclose(actual.frames, expected.frames, atol=0.02)
        np.testing.assert_allclose(actual.responses, expected.responses, rtol=1e-3)
        few, all_ = detect(image, frames=kind, max_keypoints=10), detect(image, frames=kind)
        assert len(few) == 10
        if kind != "baumberg":  # of which some candidates do not converge
            rounding = 1e-4 if kind == "learned" else 0
            np.testing.assert_allclose(few.frames, all_.frames[:10], rtol=0, atol=rounding)
    monkeypatch.setattr(frames, "MAX_DETECTION_PIXELS", 6000)
    (halved,) = detect_batch(image[None], max_keypoints=10)
    np.testing.assert_allclose(halved.frames, detect(small, max_keypoints=10).frames, atol=0.02)
    limits = [None, 10, None, None, 10, None, None, 13, None, None, 10, None]
    assert calls == [(1, 100, 120, limit) for limit in limits] + [(1, 50, 60, 10)]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_frames_on_the_gpu_are_those_of_opencv(photo: Grey) -> None:
    actual, expected = detect(torch.from_numpy(photo).cuda(), max_keypoints=300), detect(photo, max_keypoints=300)
    close = np.abs(actual.frames - expected.frames).max((1, 2)) < 0.1
    assert close.mean() > 0.97
