"""Images to features: every input gives the same features, nothing is lost, frames stay in pixels of the image."""

import re
from pathlib import Path
from typing import Any

import cv2
import kornia
import numpy as np
import pytest
import skimage
import torch
from PIL import Image

import doap
from doap.choices import FrameShape
from doap.features import views
from doap.images.extraction import extract_patches
from doap.images.frames import detect_dog
from doap.types import Frames, Grey
from support.small_models import untrained


def test_paths_arrays_tensors_and_pil_images_give_the_same_features(tmp_path: Path) -> None:
    colour, model = skimage.data.astronaut(), untrained()
    Image.fromarray(colour).save(tmp_path / "a.png")
    tensor = torch.from_numpy(colour).permute(2, 0, 1)
    images = [tmp_path / "a.png", str(tmp_path / "a.png"), colour, Image.fromarray(colour), tensor, tensor / 255]
    one_by_one = [doap.detect_and_describe(image, model, max_keypoints=50) for image in images]
    together = doap.detect_and_describe(images, model, max_keypoints=50)
    batch = doap.detect_and_describe(torch.stack([tensor, tensor]), model, max_keypoints=50)
    assert isinstance(batch, list)
    for features in (*one_by_one[1:], *together, *batch):
        np.testing.assert_array_equal(features.frames, one_by_one[0].frames)
        np.testing.assert_array_equal(features.responses, one_by_one[0].responses)
        np.testing.assert_allclose(features.descriptors, one_by_one[0].descriptors, atol=1e-6)
    assert one_by_one[0].descriptors.shape == (50, 32)
    assert one_by_one[0].size == (512, 512)
    assert one_by_one[0].model == "test"


@pytest.mark.parametrize(("extents", "expected"), [({"dog": 6.0}, 6.0), ({"harris": 3.0}, 12.0)])
def test_patches_are_extracted_at_the_extent_of_the_detector(
    photo: Grey, extents: dict[str, float], expected: float
) -> None:
    model = untrained(extents=extents)
    features = doap.detect_and_describe(photo, model, max_keypoints=30)
    patches = extract_patches(photo, features.frames, model.input_size, expected)
    np.testing.assert_allclose(features.descriptors, doap.describe_patches(patches, model), atol=1e-6)


def test_keypoints_of_opencvs_detectors_are_described_at_extents_that_suit_their_sizes(photo: Grey) -> None:
    model = doap.load("doap-tiny-256b")
    shape = (photo.shape[1], photo.shape[0])
    warp = cv2.getRotationMatrix2D((256, 256), 20, 0.9)
    warped = np.asarray(cv2.warpAffine(photo, warp, shape, borderMode=cv2.BORDER_REFLECT), np.uint8)
    orb = cv2.ORB.create(300)

    def correct(first: doap.Features, second: doap.Features) -> int:
        pairs = doap.match(first, second, geometry=None).indices
        expected = first.frames[pairs[:, 0], :, 2] @ warp[:, :2].T + warp[:, 2]
        return int((np.linalg.norm(second.frames[pairs[:, 1], :, 2] - expected, axis=1) < 3).sum())

    by_method = [doap.detect_and_describe(image, model, detector=orb.detect) for image in (photo, warped)]
    by_function = [
        doap.detect_and_describe(image, model, detector=lambda image: orb.detect(image, None))
        for image in (photo, warped)
    ]
    assert correct(*by_method) > 1.2 * correct(*by_function)
    keypoints = orb.detect(photo, None)
    given = doap.describe_keypoints(photo, keypoints, model, extent=model.extent_for("orb"))
    strongest = np.argsort([-keypoint.response for keypoint in keypoints], kind="stable")
    np.testing.assert_array_equal(by_method[0].descriptors, given.descriptors[strongest])


def test_dog_keypoints_are_opencvs_strongest(photo: Grey) -> None:
    features = doap.detect_and_describe(photo, untrained(), max_keypoints=40)
    np.testing.assert_array_equal(features.frames, detect_dog(photo, 40))
    assert features.responses is not None
    assert (np.diff(features.responses) <= 0).all()
    keypoints = sorted(cv2.SIFT.create(enable_precise_upscale=True).detect(photo, None), key=lambda k: -k.response)
    np.testing.assert_allclose(features.responses, [k.response for k in keypoints[:40]], rtol=1e-6)
    limit = float(features.responses[9])
    strong = doap.detect_and_describe(photo, untrained(), max_keypoints=None, min_response=limit)
    assert strong.responses is not None
    assert len(strong) >= 10
    assert strong.responses.min() >= limit


@pytest.mark.parametrize("shape", ["detected", "upright", "baumberg"])
@pytest.mark.parametrize("detector", ["dog", "harris", "hessian-affine"])
def test_detectors_and_shapes_of_frames_are_chosen(photo: Grey, detector: str, shape: Any) -> None:
    features = doap.detect_and_describe(photo, untrained(), detector=detector, frames=shape, max_keypoints=60)
    assert 30 < len(features) <= 60
    if shape == "upright":
        assert np.minimum(features.angles, 360 - features.angles).max() < 0.1
    else:
        assert np.ptp(features.angles) > 90


def test_a_function_can_detect(photo: Grey) -> None:
    def corners(image: Grey) -> Any:
        assert image.shape == photo.shape
        return cv2.ORB.create(70).detect(image, None)

    def grid(_: Grey) -> Frames:
        frames = np.zeros((9, 2, 3), np.float32)
        frames[:, :, :2] = 4 * np.eye(2)
        frames[:, :, 2] = np.arange(9)[:, None] * 30 + 100
        return frames

    model = untrained()
    assert len(doap.detect_and_describe(photo, model, detector=corners)) == 70
    features = doap.detect_and_describe(photo, model, detector=grid)
    np.testing.assert_array_equal(features.frames, grid(photo))
    np.testing.assert_allclose(
        features.descriptors, doap.describe_keypoints(photo, grid(photo), model).descriptors, atol=1e-6
    )


@pytest.mark.parametrize("kind", [np.bool_, np.uint8])
def test_masks_select_keypoints(photo: Grey, kind: Any) -> None:
    mask = np.zeros(photo.shape, kind)
    mask[:, 300:] = 1
    model = untrained()
    everywhere = doap.detect_and_describe(photo, model, max_keypoints=None)
    right = doap.detect_and_describe(photo, model, max_keypoints=None, mask=mask)
    expected = everywhere.keypoints[:, 0].round() >= 300
    np.testing.assert_array_equal(right.frames, everywhere.frames[expected])
    both = doap.detect_and_describe([photo, photo], model, max_keypoints=None, mask=[torch.from_numpy(mask), None])
    assert [len(features) for features in both] == [expected.sum(), len(everywhere)]
    for values in (torch.from_numpy(mask).bfloat16(), torch.from_numpy(mask).float().requires_grad_()):
        again = doap.detect_and_describe(photo, model, max_keypoints=None, mask=values)
        np.testing.assert_array_equal(again.frames, right.frames)
    with pytest.raises(doap.DoapError, match=r"mask has shape \(512, 511\), but the image \(512, 512\)"):
        doap.detect_and_describe(photo, model, mask=mask[:, 1:])
    with pytest.raises(doap.DoapError, match="2 images need as many masks, not 1"):
        doap.detect_and_describe([photo, photo], model, mask=[mask])


def test_frames_of_reduced_images_are_in_pixels_of_the_given_one() -> None:
    """A blob in an image of 700x500 pixels is found at its place at any size."""
    y, x = np.mgrid[:500, :700]
    centre, sigma = (431.25, 187.5), 16.0
    blob = np.exp(-((x - centre[0]) ** 2 + (y - centre[1]) ** 2) / (2 * sigma**2))
    image = np.asarray(40 + 180 * blob, np.uint8)
    model = untrained()
    full = doap.detect_and_describe(image, model, max_keypoints=1)
    for max_size in (350, 233, 701):
        features = doap.detect_and_describe(image, model, max_keypoints=1, max_size=max_size)
        assert features.size == (500, 700)
        np.testing.assert_allclose(features.keypoints[0], centre, atol=0.25)
        np.testing.assert_allclose(features.scales, full.scales, rtol=0.05)
        assert features.descriptors[0] @ full.descriptors[0] > 0.99
    mask = np.zeros(image.shape, bool)
    mask[180:195, 425:440] = True
    assert len(doap.detect_and_describe(image, model, max_size=233, mask=mask)) > 0
    assert len(doap.detect_and_describe(image, model, max_size=233, mask=~mask)) == 0


def test_the_mapping_of_pixel_centres_is_exact() -> None:
    small, full = (50, 80), (151, 237)
    frames = np.array([[[2, 1, -0.5], [0, 3, -0.5]], [[1, 0, 79.5], [0, 1, 49.5]]], np.float32)
    mapped = views.rescale_frames(frames, small, full)
    # The corners of the small image are the corners of the full one.
    np.testing.assert_allclose(mapped[:, :, 2], [[-0.5, -0.5], [236.5, 150.5]], atol=1e-5)
    np.testing.assert_allclose(mapped[0, :, :2], [[2 * 237 / 80, 237 / 80], [0, 3 * 151 / 50]], rtol=1e-6)
    np.testing.assert_allclose(views.rescale_frames(mapped, full, small), frames, atol=1e-5)


@pytest.mark.parametrize("model", ["doap-demo-128", "doap-demo-256b"])
def test_an_image_without_keypoints_gives_empty_features(model: str) -> None:
    descriptor = doap.load(model)
    flat = np.full((50, 60), 9, np.uint8)
    features, some, tiny = doap.detect_and_describe([flat, skimage.data.camera(), flat[:2, :2]], descriptor)
    for empty in (features, tiny, doap.detect_and_describe(flat, descriptor)):
        assert len(empty) == 0
        assert empty.descriptors.shape == (0, some.descriptors.shape[1])
        assert empty.descriptors.dtype == some.descriptors.dtype
        assert not len(doap.match(empty, some))
        assert not len(doap.match(some, empty))
        assert empty.to_cv2() == []
    assert len(some) > 500
    assert doap.detect_and_describe([], descriptor) == []


def test_limits_that_are_none_are_refused(photo: Grey) -> None:
    with pytest.raises(doap.DoapError, match="max_keypoints must be at least 0, or None for all, not -5"):
        doap.detect_and_describe(photo, untrained(), max_keypoints=-5)
    with pytest.raises(doap.DoapError, match="max_size must be at least 1 pixel, or None for no limit, not 0"):
        doap.detect_and_describe(photo, untrained(), max_size=0)
    options: list[tuple[dict[str, Any], str]] = [
        ({"max_size": np.nan}, "max_size must be at least 1 pixel"),
        ({"max_keypoints": 1.5}, "max_keypoints must be a whole number, or None for all, not 1.5"),
        ({"min_response": np.nan}, "min_response must be a number, not NaN"),
        ({"detector": None}, "a detector must be a name or a function, as cv2.ORB.create().detect is, not None"),
    ]
    for option, message in options:
        with pytest.raises(doap.DoapError, match=re.escape(message)):
            doap.detect_and_describe(photo, untrained(), **option)
    for extent in (0, -1, np.nan, np.inf):
        with pytest.raises(doap.DoapError, match="the extent must be positive and finite"):
            doap.describe_keypoints(photo, [], untrained(), extent=extent)


def test_the_name_of_a_model_is_not_a_model(photo: Grey) -> None:
    model: Any = "doap-128"
    with pytest.raises(doap.DoapError, match=r"must be one that doap\.load returns, not str"):
        doap.detect_and_describe(photo, model)
    with pytest.raises(doap.DoapError, match=r"must be one that doap\.load returns, not str"):
        doap.describe_keypoints(photo, [], model)


def test_the_bad_image_of_a_list_is_named(photo: Grey, tmp_path: Path) -> None:
    with pytest.raises(doap.DoapError, match=r"^image 2 of the list: an image must be \(H, W\)"):
        doap.detect_and_describe([photo, photo, np.zeros((4, 4, 7))], untrained())
    with pytest.raises(doap.DoapError, match=r"^image 1 of the list: the mask has shape"):
        doap.detect_and_describe([photo, photo], untrained(), mask=[None, photo[1:]])
    with pytest.raises(doap.DoapError, match=r"none\.png: no such file"):
        doap.detect_and_describe([photo, tmp_path / "none.png"], untrained())


def test_unknown_detectors_and_shapes_are_refused(photo: Grey) -> None:
    with pytest.raises(doap.DoapError, match="dogg"):
        doap.detect_and_describe(photo, untrained(), detector="dogg")
    with pytest.raises(doap.DoapError, match="round"):
        doap.detect_and_describe(photo, untrained(), frames="round")  # type: ignore[call-overload]


def test_given_keypoints_keep_their_order_wherever_they_are(photo: Grey) -> None:
    model, random = untrained(), np.random.default_rng(0)
    columns = random.uniform((-200, -200, 0.3, 0), (700, 700, 60, 360), (300, 4))
    features = doap.describe_keypoints(photo, columns, model)
    np.testing.assert_allclose(features.keypoints, columns[:, :2], rtol=1e-5)
    for index in (0, 123, 299):
        alone = doap.describe_keypoints(photo, columns[index : index + 1], model)
        np.testing.assert_allclose(alone.descriptors[0], features.descriptors[index], atol=1e-5)
    assert features.responses is None
    assert len(doap.describe_keypoints(photo, [], model)) == 0


def test_keypoints_of_opencv_and_kornia_are_described_as_ours(photo: Grey) -> None:
    model = untrained()
    detected = doap.detect_and_describe(photo, model, max_keypoints=50)
    from_opencv = doap.describe_keypoints(photo, detected.to_cv2(), model)
    from_kornia = doap.describe_keypoints(photo, detected.to_lafs(), model)
    scaled = kornia.feature.scale_laf(detected.to_lafs(), 6.0)
    at_extent = doap.describe_keypoints(photo, scaled, model, extent=model.extent_for("dog") / 6)
    for features in (from_opencv, from_kornia, at_extent):
        assert (features.descriptors * detected.descriptors).sum(1).min() > 0.999
    np.testing.assert_array_equal(from_opencv.responses, detected.responses)
    with pytest.raises(doap.DoapError, match="extent must be positive"):
        doap.describe_keypoints(photo, detected.to_lafs(), model, extent=0.0)


def test_many_keypoints_are_described_in_chunks(photo: Grey, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = np.random.default_rng(0).uniform((0, 0, 1, 0), (512, 512, 9, 360), (1000, 4))
    model = untrained()
    expected = doap.describe_keypoints(photo, columns, model)
    monkeypatch.setattr(views, "POOL_SIZE", 150)
    sizes = []

    def count(patches: Any, model: Any) -> Any:
        sizes.append(len(patches))
        return doap.describe_patches(patches, model)

    monkeypatch.setattr(views, "describe_patches", count)
    np.testing.assert_allclose(
        doap.describe_keypoints(photo, columns, model).descriptors, expected.descriptors, atol=1e-5
    )
    assert max(sizes) <= 150
    # Patches of several images share the batches.
    sizes.clear()
    images = doap.detect_and_describe([photo] * 6, model, max_keypoints=40)
    assert [len(features) for features in images] == [40] * 6
    assert sizes == [160, 80]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_gpu_gives_the_features_of_the_cpu(photo: Grey) -> None:
    columns = np.random.default_rng(0).uniform((0, 0, 1, 0), (512, 512, 9, 360), (500, 4))
    host, device = doap.load("doap-demo-128"), doap.load("doap-demo-128", device="cuda")
    a, b = (doap.describe_keypoints(photo, columns, model) for model in (host, device))
    assert (a.descriptors * b.descriptors).sum(1).min() > 0.99
    image = torch.from_numpy(photo).cuda()
    c, d = doap.detect_and_describe([image, photo], device, max_keypoints=500)
    np.testing.assert_array_equal(c.descriptors, d.descriptors)
    matches = doap.match(c, doap.detect_and_describe(photo, host, max_keypoints=500), geometry="homography")
    assert matches.inliers.sum() > 400
    on_gpu = doap.match(c, d, device="cuda", geometry=None)
    np.testing.assert_array_equal(on_gpu.indices, doap.match(c, d, geometry=None).indices)


def test_upright_frames_match_more_where_cameras_are_held_alike_and_less_where_not() -> None:
    model = doap.load("doap-tiny-128")
    left, right = (image[100:400, 200:600] for image in skimage.data.stereo_motorcycle()[:2])
    turned = np.rot90(right).copy()
    verified: dict[str, list[int]] = {}
    kinds: list[FrameShape] = ["detected", "upright"]
    for frames in kinds:
        first, *others = doap.detect_and_describe([left, right, turned], model, frames=frames, max_keypoints=400)
        verified[frames] = [int(doap.match(first, other).inliers.sum()) for other in others]
        if frames == "upright":
            np.testing.assert_array_equal(first.angles, 0)
    assert verified["upright"][0] > 1.05 * verified["detected"][0]
    assert verified["upright"][1] < 0.3 * verified["detected"][1]
