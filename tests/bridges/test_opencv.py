"""The bridge to OpenCV, beside cv2.SIFT, OpenCV's matchers and doap's own functions.

Runs under OpenCV 5 and, in `test_opencv_versions.py`, under OpenCV 4.
"""

import copy
import multiprocessing
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import skimage

import doap
from doap import DoapError
from doap.bridges import opencv
from doap.bridges.opencv import DoapFeature2D
from doap.images.frames import columns_from_keypoints
from doap.types import Grey
from support.nested_models import nested_copy

PHOTO = np.asarray(skimage.data.camera())[80:400, 80:400].copy()
BLANK = np.zeros((60, 80), np.uint8)
KEYPOINT = cv2.KeyPoint(30, 30, 10)
MODELS = ("doap-tiny-128", "doap-tiny-256b")


@pytest.fixture
def photo() -> Grey:
    return PHOTO


@pytest.fixture(scope="module")
def real() -> DoapFeature2D:
    return opencv.create("doap-tiny-128", max_keypoints=100)


@pytest.fixture(scope="module")
def binary() -> DoapFeature2D:
    return opencv.create("doap-tiny-256b", detector="dog", max_keypoints=100)


@pytest.fixture(params=MODELS)
def feature(request: pytest.FixtureRequest, real: DoapFeature2D, binary: DoapFeature2D) -> DoapFeature2D:
    return real if request.param == MODELS[0] else binary


def umat(array: Any) -> cv2.UMat:
    """Make a UMat of an array: a constructor that is missing in OpenCV's types."""
    return cv2.UMat(array)


def columns(keypoints: Sequence[cv2.KeyPoint]) -> list[list[float]]:
    """Return everything that keypoints hold."""
    return [[*k.pt, k.size, k.angle, k.response, k.octave, k.class_id] for k in keypoints]


def test_descriptors_are_those_of_doap(feature: DoapFeature2D, photo: Grey) -> None:
    keypoints, descriptors = feature.detectAndCompute(photo, None)
    own = doap.detect_and_describe(photo, feature.model, max_keypoints=100)
    assert isinstance(keypoints, tuple)
    assert columns(keypoints) == columns(own.to_cv2())
    assert all(k.octave == 0 and k.class_id == -1 for k in keypoints)
    assert descriptors.dtype == own.descriptors.dtype
    np.testing.assert_array_equal(descriptors, own.descriptors)


def test_detect_then_compute_is_detect_and_compute(feature: DoapFeature2D, photo: Grey) -> None:
    keypoints, descriptors = feature.detectAndCompute(photo, None)
    again, same = feature.compute(photo, feature.detect(photo))
    assert columns(again) == columns(keypoints)
    np.testing.assert_allclose(same, descriptors, atol=1e-3)


def test_the_small_methods_answer_as_opencvs(real: DoapFeature2D, binary: DoapFeature2D) -> None:
    for ours, theirs in ((real, cv2.SIFT.create()), (binary, cv2.ORB.create())):  # ORB has 256 bits, too
        assert ours.descriptorSize() == theirs.descriptorSize()
        assert ours.descriptorType() == theirs.descriptorType()
        assert ours.defaultNorm() == theirs.defaultNorm()
    assert not real.empty()
    assert real.getDefaultName() == "Feature2D.doap-tiny-128"


def test_colour_is_bgr_and_grey_is_opencvs(real: DoapFeature2D) -> None:
    bgr = skimage.data.astronaut()[:256, :256, ::-1].copy()
    bgr[:, :, 2] //= 4  # the channels differ, so that their order matters
    _, grey = real.detectAndCompute(cv2.cvtColor(bgr, cv2.COLOR_BGR2GRAY), None)
    _, colour = real.detectAndCompute(bgr, None)
    _, bgra = real.detectAndCompute(cv2.cvtColor(bgr, cv2.COLOR_BGR2BGRA), None)
    _, swapped = real.detectAndCompute(bgr[:, :, ::-1].copy(), None)
    np.testing.assert_array_equal(colour, grey)
    np.testing.assert_array_equal(bgra, grey)
    assert swapped.shape != grey.shape or np.abs(swapped - grey).max() > 0.1


def other_detectors() -> dict[str, Any]:
    """Return OpenCV's detectors of all versions: some live in another module in OpenCV 5."""
    found: dict[str, Any] = {"orb": cv2.ORB.create(50), "sift": cv2.SIFT.create(50)}
    found["fast"] = cv2.FastFeatureDetector.create(40)
    found["gftt"] = cv2.GFTTDetector.create(50)
    for name in ("AKAZE", "BRISK", "KAZE"):
        module = cv2 if hasattr(cv2, name) else getattr(cv2, "xfeatures2d", cv2)
        if hasattr(module, name):
            found[name.lower()] = getattr(module, name).create()
    return found


@pytest.mark.parametrize("name", sorted(other_detectors()))
def test_keypoints_of_any_detector_are_described(name: str, real: DoapFeature2D, photo: Grey) -> None:
    given = other_detectors()[name].detect(photo, None)[:50]
    keypoints, descriptors = real.compute(photo, given)
    assert columns(keypoints) == columns(given)
    assert len(given) > 10
    # An independent way to the same patches: x, y, scale = size / 2 and angle, without OpenCV's class.
    own = doap.describe_keypoints(photo, columns_from_keypoints(given), real.model)
    np.testing.assert_array_equal(descriptors, own.descriptors)


def test_size_and_angle_count_but_the_octave_does_not(real: DoapFeature2D, photo: Grey) -> None:
    def row(size: float, angle: float, octave: int) -> Any:
        keypoints, rows = real.compute(photo, [cv2.KeyPoint(200, 150, size, angle, 1, octave, 7)])
        assert columns(keypoints) == [[200, 150, size, angle, 1, octave, 7]]
        return rows[0]

    np.testing.assert_array_equal(row(8, 30, 0), row(8, 30, 12_452_098))
    assert np.abs(row(8, 30, 0) - row(16, 30, 0)).max() > 0.05
    assert np.abs(row(8, 30, 0) - row(8, 90, 0)).max() > 0.05
    np.testing.assert_array_equal(row(8, -1, 0), row(8, 0, 0))


def test_keypoints_outside_are_kept(real: DoapFeature2D, photo: Grey) -> None:
    keypoints, descriptors = real.compute(photo, [cv2.KeyPoint(-50, 20, 10), cv2.KeyPoint(600, 20, 10), KEYPOINT])
    assert len(keypoints) == len(descriptors) == 3


def test_extent_and_detector_can_be_chosen(real: DoapFeature2D, photo: Grey) -> None:
    orb = cv2.ORB.create(100)
    feature = opencv.create(real.model, detector=lambda image: orb.detect(image, None), extent=1.5, max_keypoints=50)
    keypoints, descriptors = feature.detectAndCompute(photo, None)
    assert len(keypoints) == 50
    own = doap.describe_keypoints(photo, keypoints, real.model, extent=1.5)
    np.testing.assert_allclose(descriptors, own.descriptors, atol=1e-3)
    assert opencv.create(real.model, detector=orb.detect).extent == real.model.extent_for("orb")


def test_upright_keypoints_have_no_rotation(real: DoapFeature2D, photo: Grey) -> None:
    feature = opencv.create(real.model, frames="upright", max_keypoints=60)
    keypoints, descriptors = feature.detectAndCompute(photo, None)
    assert {keypoint.angle for keypoint in keypoints} == {0.0}
    expected = doap.detect_and_describe(photo, real.model, frames="upright", max_keypoints=60)
    np.testing.assert_allclose(descriptors, expected.descriptors, atol=1e-5)


def test_a_prefix_of_a_nested_model(photo: Grey, tmp_path: Path) -> None:
    path = nested_copy("doap-tiny-256b", tmp_path, [64])
    short = opencv.create(path, max_keypoints=50, dimensions=64)
    assert (short.descriptorSize(), repr(short)[:24]) == (8, "DoapFeature2D(nested@64,")
    expected = doap.detect_and_describe(photo, doap.load(path, dimensions=64), max_keypoints=50)
    np.testing.assert_array_equal(short.detectAndCompute(photo, None)[1], expected.descriptors)
    exact = opencv.create(doap.load(path, fast=False, dimensions=64), max_keypoints=50)
    whole = opencv.create(doap.load(path, fast=False), max_keypoints=50)
    np.testing.assert_array_equal(
        exact.detectAndCompute(photo, None)[1], whole.detectAndCompute(photo, None)[1][:, : short.descriptorSize()]
    )


def test_a_detector_of_doap_has_its_own_extent(photo: Grey) -> None:
    feature = opencv.create("doap-tiny-128", detector="harris-affine", max_keypoints=20)
    own = doap.detect_and_describe(photo, feature.model, detector="harris-affine", max_keypoints=20)
    assert feature.extent == feature.model.extent_for("harris-affine") != feature.model.extent_for("dog")
    np.testing.assert_array_equal(feature.detectAndCompute(photo, None)[1], own.descriptors)


def test_large_images_are_reduced_in_every_method(real: DoapFeature2D, photo: Grey) -> None:
    feature = opencv.create(real.model, max_keypoints=100, max_size=240)
    keypoints, descriptors = feature.detectAndCompute(photo, None)
    own = doap.detect_and_describe(photo, real.model, max_keypoints=100, max_size=240)
    np.testing.assert_array_equal(descriptors, own.descriptors)
    detected = feature.detect(photo)
    assert columns(detected) == columns(keypoints)
    assert max(k.pt[0] for k in detected) > 240
    np.testing.assert_allclose(feature.compute(photo, detected)[1], descriptors, atol=0.02)


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_])
def test_masks_keep_what_is_not_zero(dtype: Any, real: DoapFeature2D, photo: Grey) -> None:
    mask = np.zeros(photo.shape, dtype)
    mask[50:250, 50:250] = 1
    keypoints, descriptors = real.detectAndCompute(photo, mask)
    assert 10 < len(keypoints) == len(descriptors)
    assert all(49.5 <= k.pt[0] <= 249.5 and 49.5 <= k.pt[1] <= 249.5 for k in keypoints)
    assert columns(real.detect(photo, mask[:, :, None])) == columns(keypoints)
    assert real.detectAndCompute(photo, np.zeros_like(mask)) == ((), None)
    assert len(real.detect(photo, np.zeros((0, 0), np.uint8))) == 100  # an empty mask is none, as in OpenCV


def shape(answer: Any) -> Any:
    """Reduce an answer to what can be compared between features: types, lengths and None."""
    if isinstance(answer, tuple):
        return tuple(shape(part) for part in answer)
    if isinstance(answer, cv2.UMat):
        return ("UMat", shape(answer.get()))
    return answer.shape if isinstance(answer, np.ndarray) else type(answer).__name__


ANSWERS: dict[str, Callable[[Any], Any]] = {
    "blank": lambda f: f.detectAndCompute(BLANK, None),
    "blank by name": lambda f: f.detectAndCompute(image=BLANK, mask=None, descriptors=None, useProvidedKeypoints=False),
    "blank UMat": lambda f: f.detectAndCompute(umat(BLANK), None),
    "detect blank": lambda f: f.detect(BLANK),
    "detect None": lambda f: f.detect(None),
    "detect empty": lambda f: f.detect(np.zeros((0, 5), np.uint8), None),
    "detect list": lambda f: f.detect([BLANK, BLANK, None]),
    "detect masks": lambda f: f.detect((BLANK, BLANK), [None, np.ones_like(BLANK)]),
    "detect no images": lambda f: f.detect([]),
    "compute nothing": lambda f: f.compute(BLANK, []),
    "compute None": lambda f: f.compute(BLANK, None),
    "compute": lambda f: f.compute(image=BLANK, keypoints=[KEYPOINT], descriptors=None),
    "compute column": lambda f: f.compute(BLANK[:, :, None], (KEYPOINT,)),
    "compute in None": lambda f: f.compute(None, [KEYPOINT]),
    "compute in empty": lambda f: f.compute(np.zeros((0, 0), np.uint8), [KEYPOINT]),
    "compute UMat": lambda f: f.compute(umat(BLANK), [KEYPOINT]),
    "compute nothing in UMat": lambda f: f.compute(umat(BLANK), []),
    "compute list": lambda f: f.compute([BLANK, BLANK], [[KEYPOINT, KEYPOINT], []]),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_have_the_form_of_sifts(name: str, real: DoapFeature2D) -> None:
    assert shape(ANSWERS[name](real)) == shape(ANSWERS[name](cv2.SIFT.create()))


def test_an_array_of_the_caller_is_filled(real: DoapFeature2D, photo: Grey) -> None:
    for feature in (real, cv2.SIFT.create()):
        given = np.zeros((1, 128), np.float32)
        _, filled = feature.compute(photo, [KEYPOINT], given)
        assert filled is given
        assert given.any()
        assert feature.compute(photo, [KEYPOINT], np.zeros((2, 128), np.float32))[1].shape == (1, 128)


def test_lists_and_umats_give_the_same_values(real: DoapFeature2D, photo: Grey) -> None:
    images = [photo, BLANK, photo[:200, :250]]
    detected = real.detect(images)
    keypoints, descriptors = real.compute(images, detected)
    for image, points, again, rows in zip(images, detected, keypoints, descriptors, strict=True):
        alone, expected = real.detectAndCompute(image, None)
        assert columns(points) == columns(again) == columns(alone)
        assert (rows is None) == (expected is None)
        if rows is not None:
            np.testing.assert_allclose(rows, expected, atol=1e-3)
    _, on_umat = real.detectAndCompute(umat(photo), umat(np.ones_like(photo)))
    np.testing.assert_array_equal(on_umat.get(), real.detectAndCompute(photo, None)[1])


ERRORS: dict[str, tuple[Callable[[DoapFeature2D], Any], str]] = {
    "None": (lambda f: f.detectAndCompute(None, None), "None or empty; cv2.imread"),
    "empty": (lambda f: f.detectAndCompute(np.zeros((0, 0), np.uint8)), "None or empty"),
    "path": (lambda f: f.detect("a.png"), "not str"),
    "uint16": (lambda f: f.detect(PHOTO.astype(np.uint16)), "uint8, as for cv2.SIFT, not uint16"),
    "float": (lambda f: f.compute(PHOTO / 255, [KEYPOINT]), "not float64"),
    "channels": (lambda f: f.detect(np.zeros((9, 9, 2), np.uint8)), r"BGR or .*not \(9, 9, 2\)"),
    "batch": (lambda f: f.detect(np.zeros((1, 9, 9, 3), np.uint8)), r"not \(1, 9, 9, 3\)"),
    "mask size": (lambda f: f.detect(PHOTO, np.ones((10, 10), np.uint8)), r"mask has shape \(10, 10\)"),
    "mask type": (lambda f: f.detect(PHOTO, np.ones(PHOTO.shape, np.float32)), "uint8 or bool, not float32"),
    "mask colour": (lambda f: f.detect(PHOTO, np.ones((*PHOTO.shape, 3), np.uint8)), "mask has shape"),
    "masks": (lambda f: f.detect([PHOTO, PHOTO], [None]), "2 images need a list of as many masks, not 1"),
    "one mask": (lambda f: f.detect([PHOTO], np.ones_like(PHOTO)), "need a list of as many masks, not ndarray"),
    "in list": (lambda f: f.detect([BLANK, PHOTO / 255]), "image 1 of the list: .*float64"),
    "keypoints": (lambda f: f.compute([PHOTO, PHOTO], [[KEYPOINT]]), "2 images need a list of as many lists"),
    "list": (lambda f: f.detectAndCompute([PHOTO, PHOTO], None), "one image; call detect and compute"),
    "provided": (lambda f: f.detectAndCompute(PHOTO, None, None, True), r"call compute\(image, keypoints\)"),
    "points": (lambda f: f.compute(PHOTO, np.zeros((3, 2))), "keypoint 0 is no cv2.KeyPoint but ndarray"),
    "number": (lambda f: f.compute(PHOTO, 5), "keypoints must be a sequence of cv2.KeyPoint, not int"),
    "size": (lambda f: f.compute(PHOTO, [KEYPOINT, cv2.KeyPoint(30, 30, 0)]), "keypoint 1 has no valid"),
    "position": (lambda f: f.compute(PHOTO, [cv2.KeyPoint(float("nan"), 30, 5)]), "keypoint 0 has no valid"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_one_line(name: str, real: DoapFeature2D) -> None:
    call, message = ERRORS[name]
    with pytest.raises(DoapError, match=message) as caught:
        call(real)
    assert "\n" not in str(caught.value)


def test_options_are_checked(real: DoapFeature2D) -> None:
    with pytest.raises(DoapError, match="no model of this name"):
        opencv.create("doap-129")
    with pytest.raises(DoapError, match="not SIFT"):
        opencv.create(cv2.SIFT.create())  # type: ignore[arg-type]
    with pytest.raises(DoapError, match="stays on its device"):
        opencv.create(real.model, device="cpu")
    with pytest.raises(DoapError, match="a loaded model keeps its length"):
        opencv.create(real.model, dimensions=64)
    with pytest.raises(DoapError, match="extent must be positive"):
        opencv.create(real.model, extent=0)
    with pytest.raises(DoapError, match="detector sift: unknown"):
        opencv.create(real.model, detector="sift")
    with pytest.raises(DoapError, match="frame shape circle: unknown"):
        opencv.create(real.model, frames="circle")  # type: ignore[arg-type]
    with pytest.raises(DoapError, match="max_keypoints must be at least 0"):
        opencv.create(real.model, max_keypoints=-1)


@pytest.mark.parametrize("name", ["extent", "max_keypoints", "min_response", "max_size"])
@pytest.mark.parametrize(("value", "shown"), [("a", "'a'"), ([1], "list"), (np.ones(2), "ndarray")])
def test_options_of_numbers_are_numbers(real: DoapFeature2D, name: str, value: Any, shown: str) -> None:
    with pytest.raises(DoapError, match=f"{name} must be a number, not {shown}$"):
        opencv.create(real.model, **{name: value})


def test_copies_describe_the_same(feature: DoapFeature2D, photo: Grey) -> None:
    _, expected = feature.detectAndCompute(photo, None)
    for twin in (pickle.loads(pickle.dumps(feature)), copy.deepcopy(feature), copy.copy(feature)):
        np.testing.assert_array_equal(twin.detectAndCompute(photo, None)[1], expected)
    assert "doap-tiny" in repr(feature)
    assert len(repr(feature)) < 300


def describe_in_process(task: tuple[DoapFeature2D, Grey]) -> Any:
    """Describe an image in another process; keypoints cannot be pickled."""
    feature, image = task
    return feature.detectAndCompute(image, None)[1]


@pytest.mark.slow
def test_processes_describe_the_same(real: DoapFeature2D, photo: Grey) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        (there,) = pool.map_async(describe_in_process, [(real, photo)]).get(timeout=120)
    np.testing.assert_allclose(there, real.detectAndCompute(photo, None)[1], atol=1e-5)
