"""Arguments of the library that are out of range, of another kind or on no device: one line each, or a result."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

import doap
from doap import DoapError, Features, Matches
from doap.choices import MatchGeometry
from doap.networks.card import read_card
from doap.networks.registry import find_weights

RANDOM = np.random.default_rng(0)
IMAGE = RANDOM.integers(0, 256, (80, 90), dtype=np.uint8)
FRAMES = np.concatenate([np.tile(np.eye(2) * 3, (40, 1, 1)), RANDOM.uniform(0, 80, (40, 2, 1))], 2).astype(np.float32)
POINTS = RANDOM.uniform(0, 80, (30, 2))
MODEL = doap.load("doap-demo-128")


def features(**changes: Any) -> Features:
    values = RANDOM.normal(size=(40, 16)).astype(np.float32)
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    arguments: dict[str, Any] = {"frames": FRAMES, "descriptors": unit, "size": (80, 90), "model": "mine"}
    return Features(**{**arguments, **changes})


FIRST, SECOND = features(), features()
NOT_FINITE = FIRST.descriptors.copy()
NOT_FINITE[3, 2] = np.nan


def detect_and_compute(image: np.ndarray) -> object:
    return cv2.SIFT.create().detectAndCompute(image, None)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "NaN in the first": (lambda: doap.match(features(descriptors=NOT_FINITE), SECOND), "descriptor 3 of the first set"),
    "NaN in the second": (lambda: doap.match(FIRST, features(descriptors=NOT_FINITE)), "descriptor 3 of the second"),
    "NaN as bytes": (lambda: features(descriptors=NOT_FINITE).to_record("uint8"), "NaN or infinity cannot be stored"),
    "no features": (lambda: doap.match(FIRST, FIRST.descriptors), "features, not with ndarray"),  # type: ignore[arg-type]
    "geometry": (lambda: doap.match(FIRST, SECOND, geometry="affine"), "geometry affine: unknown; "),  # type: ignore[arg-type]
    "negative threshold": (lambda: doap.match(FIRST, SECOND, threshold=-1), "threshold must be a positive"),
    "infinite threshold": (lambda: doap.match(FIRST, SECOND, threshold=np.inf), "threshold must be a positive"),
    "ratio of text": (lambda: doap.match(FIRST, SECOND, ratio="x"), "ratio must be a number, not 'x'"),  # type: ignore[arg-type]
    "distance of text": (
        lambda: doap.match(FIRST, SECOND, max_distance="x"),  # type: ignore[arg-type]
        "the largest distance must be a number, not 'x'",
    ),
    "number as masks": (
        lambda: doap.detect_and_describe([IMAGE, IMAGE], MODEL, mask=3),  # type: ignore[call-overload]
        "2 images need as many masks, not int",
    ),
    "points of text": (lambda: doap.verify("ab", "cd", (9, 9)), "matched points must be numbers"),  # type: ignore[arg-type]
    "fewer descriptors": (lambda: features(descriptors=FIRST.descriptors[:-1]), r"must be \(40, D\).*not \(39, 16\)"),
    "list of descriptors": (lambda: features(descriptors=[[1.0]] * 40), "descriptors must be an array, not list"),
    "integers": (lambda: features(descriptors=np.ones((40, 4), int)), "must be floating-point, or bits in uint8"),
    "negative index": (
        lambda: Matches(np.array([[-1, 0]]), np.zeros(1), np.zeros(1), np.ones(1, bool)),
        "must be integers of at least 0",
    ),
    "max_keypoints": (lambda: doap.detect_and_describe(IMAGE, MODEL, max_keypoints=-1), "at least 0, or None for all"),
    "endless max_keypoints": (lambda: doap.detect_and_describe(IMAGE, MODEL, max_keypoints=10**30), "less than 2,147"),
    "name of a model": (lambda: doap.describe_patches(IMAGE[None, :9, :9], "sift"), "not str"),  # type: ignore[call-overload]
    "size of patches": (lambda: doap.extract_patches(IMAGE, FRAMES, 0, 5.0), "at least 1 pixel, not 0"),
    "extent of patches": (lambda: doap.extract_patches(IMAGE, FRAMES, 32, -1), "extent must be positive"),
    "extent of methods": (lambda: doap.open_methods(["sift"], extent=np.nan), "extent must be positive"),
    "no size": (lambda: features(size=None), r"size must be \(height, width\), two whole numbers of pixels, not None"),
    "number as size": (lambda: features(size=80), "two whole numbers of pixels, not 80"),
    "file of features": (lambda: Features.load(3), "the file must be a path or a name, not 3"),  # type: ignore[arg-type]
    "no file": (lambda: Features.load(None), "the file must be a path or a name, not NoneType"),  # type: ignore[arg-type]
    "bytes as file": (lambda: FIRST.save(b"a.npz"), "the file must be a path or a name, not b'a.npz'"),  # type: ignore[arg-type]
    "file of matches": (lambda: Matches.load(3), "the file must be a path or a name, not 3"),  # type: ignore[arg-type]
    "file of a picture": (lambda: FIRST.draw(IMAGE, 3), "the file must be a path or a name, not 3"),  # type: ignore[arg-type]
    "short mask": (lambda: FIRST[np.ones(3, bool)], "40 features cannot be selected in this way: boolean index"),
    "index beyond the end": (lambda: FIRST[[10**6]], "cannot be selected in this way: index 1000000 is out of bounds"),
    "index of floats": (lambda: FIRST[np.array([0.5])], "in this way: arrays used as indices must be of integer"),
    "slice of floats": (lambda: FIRST[:0.5], "cannot be selected in this way: slice indices must be integers"),
    "part of a feature": (lambda: FIRST.strongest(2.5), "number of features must be a whole number, not 2.5"),  # type: ignore[arg-type]
    "no image": (lambda: doap.read_grey(None), "the image must be a path or a name, not NoneType"),  # type: ignore[arg-type]
    "float image": (lambda: doap.extract_patches(IMAGE / 255, FRAMES, 32, 5.0), "uint8 grey values, .* not float64"),  # type: ignore[arg-type]
    "deep image": (lambda: doap.extract_patches(IMAGE.astype(np.uint16), FRAMES, 32, 5.0), "not uint16"),
    "float tensor": (lambda: doap.extract_patches(torch.rand(9, 9), FRAMES, 32, 5.0), "not torch.float32"),  # type: ignore[arg-type]
    "image that is none": (lambda: doap.extract_patches(None, FRAMES, 32, 5.0), "not NoneType"),  # type: ignore[arg-type]
    "part of a keypoint": (
        lambda: doap.detect_and_describe(IMAGE, MODEL, max_keypoints=np.float32(5)),  # type: ignore[call-overload]
        "max_keypoints must be a whole number, or None for all, not 5.0",
    ),
    "part of a pixel": (lambda: doap.extract_patches(IMAGE, FRAMES, 32.5, 5.0), "must be a whole number, not 32.5"),  # type: ignore[arg-type]
    "detectAndCompute": (
        lambda: doap.detect_and_describe(IMAGE, MODEL, detector=detect_and_compute),  # type: ignore[arg-type]
        "a detector must return .* frames or cv2.KeyPoints, not tuple of other things",
    ),
    "keypoints with gradients": (
        lambda: doap.describe_keypoints(IMAGE, [torch.ones(4, requires_grad=True)], MODEL),
        "without gradients",
    ),
    "shape of frames": (lambda: doap.extract_patches(IMAGE, FRAMES[:, :, :2], 32, 5.0), r"frames must be \(N, 2, 3\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_arguments_are_refused_in_one_line(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(DoapError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("geometry", ["fundamental", "homography"])
def test_numbers_of_array_libraries_are_those_of_python(geometry: MatchGeometry) -> None:
    def match(number: Callable[[float], Any]) -> Matches:
        other = features(descriptors=FIRST.descriptors)
        limits = {"ratio": number(0.9), "max_distance": number(1.5), "threshold": number(2.0)}
        return doap.match(FIRST, other, geometry=geometry, **limits)

    def describe(number: Callable[[float], Any], whole: Callable[[int], Any]) -> Features:
        limits = {"max_keypoints": whole(7), "max_size": number(70.0), "min_response": number(0.02)}
        return doap.detect_and_describe(IMAGE, MODEL, **limits)

    for number in (np.float32, np.array, torch.tensor):
        assert match(number).inliers.sum() == match(float).inliers.sum() > 20
    expected = describe(float, int)
    assert len(expected) == 7
    for number, whole in ((np.float32, np.int64), (np.array, np.array), (torch.tensor, torch.tensor)):
        np.testing.assert_array_equal(describe(number, whole).frames, expected.frames)
    patches = doap.extract_patches(IMAGE, FRAMES, 32, 5.0)
    np.testing.assert_array_equal(doap.extract_patches(IMAGE, FRAMES, 32, torch.tensor(5.0)), patches)  # type: ignore[arg-type]


def test_a_detector_may_return_bfloat16() -> None:
    frames = torch.tensor([[[4, 0, 40], [0, 4, 30]]], dtype=torch.bfloat16, requires_grad=True)
    described = doap.detect_and_describe(IMAGE, MODEL, detector=lambda _: frames)  # type: ignore[arg-type, return-value]
    np.testing.assert_array_equal(described.frames, [[[4, 0, 40], [0, 4, 30]]])


@pytest.mark.parametrize("device", ["meta", "cuda:99", "abacus"])
def test_devices_that_are_not_here_are_refused(device: str) -> None:
    for call in (
        lambda: doap.match(FIRST, SECOND, device=device),
        lambda: doap.extract_patches(IMAGE, FRAMES, 32, 5.0, device),
        lambda: doap.open_methods(["sift"], device),
    ):
        with pytest.raises(DoapError, match=f"device {device}: "):
            call()


def test_reversed_arrays_are_used_as_they_are() -> None:
    reversed_features = features(frames=FRAMES[::-1], descriptors=FIRST.descriptors[::-1])
    matches = doap.match(reversed_features, SECOND, geometry=None)
    expected = doap.match(FIRST, SECOND, geometry=None).indices
    np.testing.assert_array_equal(matches.indices, [[39 - i, j] for i, j in expected[::-1]])
    left, _ = matches.points(reversed_features, SECOND)
    np.testing.assert_array_equal(left, FRAMES[expected[::-1, 0], :, 2])
    mirrored = np.ascontiguousarray(IMAGE[::-1, ::-1])
    patches = doap.extract_patches(IMAGE[::-1, ::-1], FRAMES[::-1], 32, 5.0)
    np.testing.assert_array_equal(patches[::-1], doap.extract_patches(mirrored, FRAMES, 32, 5.0))
    described = doap.describe_keypoints(IMAGE[::-1, ::-1], FRAMES, MODEL).descriptors
    np.testing.assert_array_equal(described, doap.describe_keypoints(mirrored, FRAMES, MODEL).descriptors)


@pytest.mark.parametrize("size", [(80, 90), [80, 90], np.array([80, 90])])
def test_a_size_may_be_any_pair(size: Any) -> None:
    height, width = features(size=size).size
    assert (height, width) == (80, 90)


def test_the_name_of_an_image_is_no_number(tmp_path: Path) -> None:
    FIRST.save(tmp_path / "features.h5")
    with pytest.raises(DoapError, match=r"features\.h5: the name of an image or a pair must be a string, not int"):
        Features.load(tmp_path / "features.h5", image=3)  # type: ignore[arg-type]


def test_paths_may_be_strings(tmp_path: Path) -> None:
    for name in ("features.npz", "features.h5"):
        FIRST.save(str(tmp_path / name))
        np.testing.assert_array_equal(Features.load(str(tmp_path / name)).descriptors, FIRST.descriptors)
    doap.match(FIRST, SECOND).save(str(tmp_path / "matches.npz"))
    assert len(Matches.load(str(tmp_path / "matches.npz")))
    exact = doap.load("doap-demo-128", fast=False)
    doap.save(exact, str(tmp_path / "mine.safetensors"), read_card(find_weights("doap-demo-128")).architecture)
    assert doap.load(str(tmp_path / "mine.safetensors")).name == "doap-demo-128"
    result = doap.Result(benchmark="hpatches", settings={}, methods=[], scores=[])
    result.write_json(str(tmp_path / "result.json"))
    result.write_csv(str(tmp_path / "result.csv"))
    assert doap.read_result(str(tmp_path / "result.json")) == result
