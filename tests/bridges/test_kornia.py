"""The modules are compared with kornia's own: detectors, extraction, matchers; and with doap's features."""

import copy
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import kornia.feature as KF
import numpy as np
import pytest
import skimage
import torch
from kornia.geometry.transform import ScalePyramid
from torch import Tensor

import doap
from doap.bridges.kornia import (
    DoapFeature,
    FrameDescriptor,
    FrameDetector,
    PatchDescriptor,
    frames_from_lafs,
    lafs_from_frames,
)
from doap.features.keypoint_input import frame_angles, frame_scales
from doap.types import Grey
from support.packages import install

OLDEST = ("kornia==0.7.3", "kornia_rs==0.1.5")
REAL, BINARY = "doap-tiny-128", "doap-tiny-256b"
MOTORCYCLE = (180, 420)  # rows of the stereo pair that the tests use
INPUT = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(1))
PATCHES = torch.nn.functional.interpolate(INPUT, (32, 32), mode="bilinear")


def tensor(image: Grey) -> Tensor:
    return torch.from_numpy(np.array(image))[None, None] / 255


def cosines(first: Tensor, second: Tensor) -> Tensor:
    return torch.nn.functional.cosine_similarity(first.double(), second.double(), dim=-1)


@pytest.fixture(scope="module")
def pair() -> tuple[Tensor, Tensor, Any]:
    """A part of the rectified stereo pair, (1, 3, H, W) RGB in 0..1, and its measured disparities."""
    left, right, disparity = skimage.data.stereo_motorcycle()
    rows = slice(*MOTORCYCLE)
    images = [torch.from_numpy(image[rows].copy()).permute(2, 0, 1)[None] / 255 for image in (left, right)]
    return images[0], images[1], disparity[rows]


# Frames and LAFs


def test_lafs_are_those_that_kornia_makes_of_opencvs_keypoints() -> None:
    keypoint = cv2.KeyPoint(30.0, 20.0, 8.0, 25.0)
    lafs = lafs_from_frames([[*keypoint.pt, keypoint.size / 2, keypoint.angle]], mr_size=6)
    theirs = KF.laf_from_center_scale_ori(
        torch.tensor([[[30.0, 20.0]]]), torch.tensor([[[[24.0]]]]), torch.tensor([[[-25.0]]])
    )
    torch.testing.assert_close(lafs, theirs)
    assert KF.get_laf_orientation(lafs).item() == pytest.approx(-25)


def test_conversion_back_and_forth_keeps_frames(photo: Grey) -> None:
    frames = doap.detect_and_describe(photo, doap.load(REAL), frames="baumberg", max_keypoints=50).frames
    lafs = lafs_from_frames(frames, mr_size=6)
    assert lafs.shape == (1, 50, 2, 3)
    np.testing.assert_allclose(KF.get_laf_scale(lafs).flatten(), 6 * frame_scales(frames), rtol=1e-5)
    np.testing.assert_array_equal(KF.get_laf_center(lafs)[0], frames[:, :, 2])
    np.testing.assert_allclose(frames_from_lafs(lafs, mr_size=6), frames, rtol=1e-6)
    np.testing.assert_allclose(frames_from_lafs(lafs[0].double(), mr_size=6), frames, rtol=1e-6)
    assert lafs_from_frames(frames[:0]).shape == (1, 0, 2, 3)
    assert frames_from_lafs(lafs[:, :0]).shape == (0, 2, 3)


def test_a_rotation_of_the_image_adds_to_the_angle_with_opposite_signs(photo: Grey) -> None:
    """The image is rotated by 90 degrees counter-clockwise: kornia's angles grow, those of doap decrease."""
    feature = DoapFeature(doap.load(REAL), num_features=300)
    lafs, _, descs = feature(tensor(photo))
    rotated_lafs, _, rotated_descs = feature(tensor(np.rot90(photo)))
    _, indices = KF.match_smnn(descs[0], rotated_descs[0], 0.7)
    first, second = (laf[:, index] for laf, index in zip((lafs, rotated_lafs), indices.T, strict=True))
    x, y = KF.get_laf_center(first)[0].T
    moved = torch.stack([y, photo.shape[1] - 1 - x], 1)
    correct = (moved - KF.get_laf_center(second)[0]).norm(dim=1) < 1
    assert correct.sum() > 100
    turn = (KF.get_laf_orientation(second) - KF.get_laf_orientation(first))[0, correct, 0] % 360
    assert ((turn - 90).abs() < 5).float().mean() > 0.95
    own = frame_angles(frames_from_lafs(second)) - frame_angles(frames_from_lafs(first))
    assert np.mean(np.abs(own[correct.numpy()] % 360 - 270) < 5) > 0.95


@pytest.mark.parametrize("sigma", [4.0, 7.0])
def test_scales_are_a_sixth_of_those_of_kornias_scale_space_detector(sigma: float) -> None:
    y, x = np.mgrid[:129, :129]
    # Not centred on a pixel: responses that are equal by symmetry have no maximum.
    blob = (20 + 200 * np.exp(-((x - 64.3) ** 2 + (y - 63.8) ** 2) / (2 * sigma**2))).astype(np.float32) / 255
    detector = KF.ScaleSpaceDetector(
        5,
        resp_module=KF.BlobDoG(),
        scale_pyr_module=ScalePyramid(3, 1.6, 32),
        scale_space_response=True,
        minima_are_also_good=True,
    )
    lafs, _ = detector(torch.from_numpy(blob)[None, None])
    (frame,) = doap.detect_and_describe(blob, doap.load(REAL), frames="upright", max_keypoints=1).frames
    (theirs,) = frames_from_lafs(lafs[:, :1], mr_size=6)
    np.testing.assert_allclose(theirs[:, 2], frame[:, 2], atol=0.1)
    assert frame_scales(theirs[None])[0] == pytest.approx(frame_scales(frame[None])[0], rel=0.03)


# Patches


@pytest.mark.parametrize("name", [REAL, "rootsift"])
def test_the_range_of_values_is_the_given_one(name: str) -> None:
    model = doap.load(name)
    expected = model(255 * PATCHES)
    torch.testing.assert_close(PatchDescriptor(model)(PATCHES), expected)
    torch.testing.assert_close(PatchDescriptor(model, value_range=255)(255 * PATCHES), expected)
    faint = 0.5 + 1e-5 * PATCHES  # a hundredth of a grey level: the range matters
    assert not torch.allclose(PatchDescriptor(model, value_range=255)(faint), expected, atol=0.1)


def test_patches_of_other_sizes_are_resized() -> None:
    large = torch.nn.functional.interpolate(INPUT, (64, 64), mode="bilinear")
    module = PatchDescriptor(doap.load(REAL))
    assert cosines(module(large), module(PATCHES)).min() > 0.98
    feature = KF.LAFDescriptor(module, 41)
    assert feature(torch.rand(2, 3, 60, 60), torch.eye(2, 3).mul(20).expand(2, 5, 2, 3)).shape == (2, 5, 128)


def test_bits_are_signs_that_rank_as_hamming_distances() -> None:
    model = doap.load(BINARY)
    signs, packed = PatchDescriptor(model)(PATCHES), PatchDescriptor(model, packed=True)(PATCHES)
    assert (signs.dtype, signs.shape, packed.dtype, packed.shape) == (torch.float32, (40, 256), torch.uint8, (40, 32))
    bits = np.unpackbits(packed.numpy(), axis=1)
    np.testing.assert_array_equal(signs, (2.0 * bits - 1) / 16)
    hamming = (bits[:, None] != bits[None]).sum(2)
    squared = torch.cdist(signs, signs).square().numpy()
    np.testing.assert_allclose(squared, 4 * hamming / 256, atol=1e-6)
    np.testing.assert_array_equal(np.argsort(squared, 1, kind="stable"), np.argsort(hamming, 1, kind="stable"))


def test_kornias_matcher_of_signs_is_ours_of_bits(pair: tuple[Tensor, Tensor, Any]) -> None:
    model = doap.load(BINARY)
    signs, bits = (
        [DoapFeature(model, 500, packed=packed)(image)[2][0] for image in pair[:2]] for packed in (False, True)
    )
    distances, indices = KF.match_mnn(signs[0], signs[1])
    expected, hamming = doap.mutual_nearest(bits[0], bits[1])
    assert torch.equal(indices, expected)
    torch.testing.assert_close(64 * distances[:, 0].square(), hamming.float(), atol=1e-3, rtol=0)


def test_gradients_reach_image_and_weights() -> None:
    model = doap.load(REAL, fast=False).double()
    descriptor = KF.LAFDescriptor(PatchDescriptor(model), model.input_size)
    image = torch.rand(1, 1, 40, 40, dtype=torch.float64, requires_grad=True)
    lafs = torch.tensor([[[[12.0, 0, 20], [0, 12, 19]]]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda values: descriptor(values, lafs)[..., :2], (image,), fast_mode=True)
    descriptor(image, lafs)[..., 0].sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


# Features


def test_the_same_features_as_doaps(photo: Grey) -> None:
    model = doap.load(REAL)
    lafs, responses, descs = DoapFeature(model, num_features=200)(tensor(photo))
    expected = doap.detect_and_describe(photo, model, max_keypoints=200)
    np.testing.assert_allclose(frames_from_lafs(lafs, model.extent_for("dog")), expected.frames, rtol=1e-5)
    np.testing.assert_array_equal(responses[0], expected.responses)
    assert cosines(descs[0], torch.from_numpy(expected.descriptors)).min() > 0.9999


@pytest.mark.parametrize("name", [REAL, BINARY])
def test_kornias_extraction_gives_close_descriptors(name: str, photo: Grey) -> None:
    model = doap.load(name)
    image = tensor(photo)
    lafs, _, descs = DoapFeature(model, num_features=300)(image)
    theirs = KF.LAFDescriptor(PatchDescriptor(model), model.input_size)(image, lafs)
    alike = cosines(descs, theirs)
    print(f"{name}: cosine of descriptors of kornia's patches and ours: mean {alike.mean():.4f}, min {alike.min():.4f}")
    assert alike.mean() > 0.9
    _, indices = KF.match_mnn(descs[0], theirs[0])
    assert (indices[:, 0] == indices[:, 1]).sum() >= 0.97 * 300


@pytest.mark.parametrize("name", [REAL, BINARY])
def test_matches_of_a_stereo_pair(name: str, pair: tuple[Tensor, Tensor, Any]) -> None:
    left, right, disparity = pair
    matcher = KF.LocalFeatureMatcher(DoapFeature(doap.load(name), 800), KF.DescriptorMatcher("smnn", 0.9))
    out = matcher({"image0": left, "image1": right})
    first, second = out["keypoints0"].numpy(), out["keypoints1"].numpy()
    x, y = np.rint(first).astype(int).T
    known = np.isfinite(disparity[y, x])
    expected = first - np.stack([disparity[y, x], np.zeros(len(x))], 1)
    correct = np.abs(second - expected).max(1)[known] < 3
    print(f"{name}: {len(first)} matches, {correct.mean():.3f} of {known.sum()} correct")
    assert len(first) > 150
    assert correct.mean() > 0.85


def test_a_batch_gives_the_features_of_its_images(photo: Grey) -> None:
    feature = DoapFeature(doap.load(REAL), num_features=100)
    images = [tensor(image) for image in (photo, np.full_like(photo, 90), photo[::-1])]
    mask = torch.ones(3, 1, *photo.shape)
    mask[2, :, :, 200:] = 0
    lafs, responses, descs = feature(torch.cat(images), mask)
    assert (lafs.shape, responses.shape, descs.shape) == ((3, 100, 2, 3), (3, 100), (3, 100, 128))
    filled = KF.laf_is_filled(lafs)
    assert filled[0].all()
    assert not filled[1].any()
    assert not responses[1].any()
    assert torch.equal(descs[1], descs[1, :1].expand(100, -1))
    assert KF.get_laf_center(lafs)[2, filled[2], 0].max() < 200
    for number in (0, 2):
        alone = feature(images[number], mask[number : number + 1])
        count = alone[0].shape[1]
        assert count == filled[number].sum()
        for part, whole in zip(alone, (lafs, responses, descs), strict=True):
            torch.testing.assert_close(part[0], whole[number, :count])


@pytest.mark.parametrize("name", [REAL, BINARY])
def test_no_keypoints(name: str) -> None:
    model = doap.load(name)
    blank, dimensions = torch.full((2, 1, 60, 50), 0.5), model.network.dimensions
    lafs, responses, descs = DoapFeature(model)(blank)
    assert (lafs.shape, responses.shape, descs.shape) == ((2, 0, 2, 3), (2, 0), (2, 0, dimensions))
    matcher = KF.LocalFeatureMatcher(DoapFeature(model), KF.DescriptorMatcher("smnn", 0.9))
    assert matcher({"image0": blank, "image1": blank})["keypoints0"].shape == (0, 2)
    assert PatchDescriptor(model)(PATCHES[:0]).shape == (0, dimensions)
    with pytest.warns(UserWarning, match="no keypoints"):
        assert KF.LAFDescriptor(PatchDescriptor(model), 32)(blank, lafs).shape == (2, 0, dimensions)


@pytest.mark.parametrize(("name", "packed", "length"), [(REAL, False, 128), (BINARY, False, 256), (BINARY, True, 32)])
def test_a_batch_without_images_gives_what_kornias_modules_give(name: str, packed: bool, length: int) -> None:
    images, lafs, mask = torch.rand(0, 3, 60, 50), torch.zeros(0, 5, 2, 3), torch.ones(0, 1, 60, 50)
    theirs = KF.LAFDescriptor(KF.SIFTDescriptor(32), 32)(images.mean(1, keepdim=True), lafs)
    model = doap.load(name)
    descs = FrameDescriptor(model, packed)(images, lafs)
    assert descs.shape[:2] == theirs.shape[:2]
    assert descs.shape[2] == length
    assert descs.dtype == (torch.uint8 if packed else torch.float32)
    actual = DoapFeature(model, packed=packed)(images, mask)
    assert [tuple(part.shape) for part in actual] == [(0, 0, 2, 3), (0, 0), (0, 0, length)]
    assert [part.dtype for part in actual] == [torch.float32, torch.float32, descs.dtype]


@pytest.mark.parametrize(("name", "fast"), [(REAL, False), (BINARY, True)])
def test_half_precision(name: str, fast: bool, photo: Grey) -> None:
    image = tensor(photo)
    feature = DoapFeature(doap.load(name, fast=fast), num_features=100)
    lafs, _, descs = feature(image)
    half_lafs, _, half_descs = feature.half()(image.half())
    assert half_lafs.dtype == torch.float32  # half precision has whole pixels only above 1024
    assert half_descs.dtype == torch.float32
    torch.testing.assert_close(half_lafs, lafs, atol=0.5, rtol=0)
    assert cosines(half_descs, descs).mean() > 0.99
    patches = PatchDescriptor(doap.load(name, fast=fast))
    exact = patches(PATCHES)
    assert cosines(patches.half()(PATCHES.half()), exact).mean() > 0.99


def test_modules_are_copied_stored_and_restored(photo: Grey) -> None:
    feature = DoapFeature(doap.load(REAL, fast=False), num_features=30)
    lafs, _, descs = feature(tensor(photo))
    for other in (copy.deepcopy(feature), pickle.loads(pickle.dumps(feature))):
        assert torch.equal(other(tensor(photo))[2], descs)
    empty = copy.deepcopy(feature)
    for parameter in empty.parameters():
        torch.nn.init.zeros_(parameter)
    empty.load_state_dict(feature.state_dict())
    assert torch.equal(empty(tensor(photo))[2], descs)
    own = KF.LocalFeature(FrameDetector(30), FrameDescriptor(doap.load(REAL, fast=False)), feature.scaling_coef)
    assert torch.equal(own(tensor(photo))[0], lafs)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", [REAL, BINARY])
def test_cuda_gives_the_features_of_the_cpu(name: str, photo: Grey) -> None:
    image = torch.cat([tensor(photo), tensor(np.full_like(photo, 90))])
    feature = DoapFeature(doap.load(name), num_features=300)
    lafs, _, descs = feature(image)
    actual, responses, vectors = feature.cuda()(image.cuda())
    assert {part.device.type for part in (actual, responses, vectors)} == {"cuda"}
    assert not KF.laf_is_filled(actual)[1].any()
    _, indices = KF.match_mnn(descs[0], vectors[0].cpu())
    moves = lafs[0, indices[:, 0], :, 2] - actual[0, indices[:, 1].to(actual.device), :, 2].cpu()
    assert (moves.norm(dim=1) < 0.5).sum() > 0.9 * 300
    theirs = KF.LAFDescriptor(PatchDescriptor(doap.load(name, "cuda")), 32)
    assert cosines(theirs(image.cuda(), actual)[0], vectors[0]).mean() > 0.9
    assert feature.half()(image.cuda().half())[0].dtype == torch.float32


# Errors


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: frames_from_lafs(torch.zeros(1, 2, 2, 3)), "keypoint 0 has no valid position and scale: "),
        (lambda: frames_from_lafs(torch.ones(2, 3, 2, 3)), r"keypoints must be .* not of shape \(2, 3, 2, 3\)"),
        (lambda: lafs_from_frames(np.eye(2, 3)[None], 0), "mr_size must be positive and finite, not 0"),
        (lambda: PatchDescriptor(doap.load(REAL), 0), "value_range must be positive and finite, not 0"),
        (lambda: PatchDescriptor(doap.load(REAL), "a"), "value_range must be a number, not 'a'"),  # type: ignore[arg-type]
        (lambda: PatchDescriptor(doap.load(REAL), packed=True), f"{REAL} has no bits to pack; use packed=False"),
        (lambda: DoapFeature(torch.nn.Identity()), "the model must be one that doap.load returns, not Identity"),  # type: ignore[arg-type]
        (lambda: DoapFeature(doap.load(REAL))(torch.rand(60, 60)), r"images must be \(B, 1, H, W\) or \(B, 3, H, W\)"),
        (lambda: DoapFeature(doap.load(REAL))(torch.rand(0, 2, 60, 60)), r"images must be .* not \(0, 2, 60, 60\)"),
        (lambda: DoapFeature(doap.load(REAL))(255 * torch.rand(1, 1, 60, 60)), r"must have values in 0\.\.1"),
        (lambda: DoapFeature(doap.load(REAL), -1)(torch.rand(1, 1, 60, 60)), "-1"),
        (lambda: DoapFeature(doap.load(REAL), detector="sift")(torch.rand(1, 1, 60, 60)), "sift"),
        (
            lambda: DoapFeature(doap.load(REAL))(torch.rand(1, 1, 60, 60), torch.ones(1, 60, 60)),
            r"the mask must be \(1, 1, 60, 60\), not \(1, 60, 60\)",
        ),
        (
            lambda: FrameDescriptor(doap.load(REAL))(torch.rand(2, 1, 60, 60), torch.ones(1, 3, 2, 3)),
            r"LAFs must be \(2, N, 2, 3\), not \(1, 3, 2, 3\)",
        ),
    ],
)
def test_bad_input_is_one_line(call: Any, line: str) -> None:
    with pytest.raises(doap.DoapError, match=line) as error:
        call()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("wrong", [{"detector": "odd"}, {"frames": "odd"}, {"num_features": -1}])
def test_options_are_checked_when_a_detector_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(doap.DoapError, match=r"^detector odd: unknown|^frame shape odd: unknown|must be at least 0"):
        FrameDetector(**wrong)


def test_patches_of_another_type_are_refused() -> None:
    with pytest.raises(ValueError, match=r"patches must be floating-point in 0\.\.1, not torch\.uint8"):
        PatchDescriptor(doap.load(REAL))((255 * PATCHES).to(torch.uint8))
    with pytest.raises(ValueError, match=r"patches must be \(N, S, S\) or \(N, 1, S, S\), not \(2, 3, 32, 32\)"):
        PatchDescriptor(doap.load(REAL))(torch.rand(2, 3, 32, 32))


@pytest.mark.slow
def test_the_code_of_the_page_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "bridges" / "kornia.md").read_text()
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(code.replace('"doap-128"', f'"{REAL}"'), names)  # a smaller model
    assert len(names["matches"]["keypoints0"]) > 300
    assert names["frames"].shape == (300, 2, 3)
    assert all(parameter.grad is not None for parameter in names["trainable"].parameters())


# The oldest kornia

SCRIPT = """
import kornia, skimage, torch, doap
import kornia.feature as KF
from doap.bridges.kornia import DoapFeature, PatchDescriptor
pair = [image[180:420].copy() for image in skimage.data.stereo_motorcycle()[:2]]
images = [torch.from_numpy(image).permute(2, 0, 1)[None] / 255 for image in pair]
for name in ("doap-tiny-128", "doap-tiny-256b"):
    model = doap.load(name)
    feature = DoapFeature(model, 800)
    out = KF.LocalFeatureMatcher(feature, KF.DescriptorMatcher("smnn", 0.9))({"image0": images[0], "image1": images[1]})
    rows = (out["keypoints0"] - out["keypoints1"])[:, 1].abs() < 3
    lafs, _, descs = feature(images[0])
    theirs = KF.LAFDescriptor(PatchDescriptor(model), 32)(images[0], lafs)
    alike = torch.nn.functional.cosine_similarity(descs, theirs, dim=2).mean()
    print(kornia.__version__, len(rows), rows.float().mean().item(), alike.item())
"""


@pytest.mark.slow
def test_the_oldest_kornia(tmp_path: Path) -> None:
    program = f"import sys; sys.path.insert(0, {str(install(tmp_path, *OLDEST))!r})\n{SCRIPT}"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        version, count, in_row, alike = line.split()
        assert version == "0.7.3"
        assert int(count) > 150
        assert float(in_row) > 0.9
        assert float(alike) > 0.9
