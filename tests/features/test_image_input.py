"""Images of every form give the same grey image; reduction keeps areas; other forms are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skimage
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from doap import DoapError
from doap.features.image_input import read_image, shrink_image, split_images
from doap.types import Grey

COLOUR = skimage.data.astronaut()
LUMA = np.array(Image.fromarray(COLOUR).convert("L"))


def channels_first() -> torch.Tensor:
    return torch.from_numpy(COLOUR).permute(2, 0, 1)


@pytest.mark.parametrize(
    "image",
    [
        COLOUR,
        COLOUR / 255,
        (COLOUR / 255).astype(np.float32),
        np.dstack([COLOUR, np.full(COLOUR.shape[:2], 255, np.uint8)]),
        COLOUR[::-1, ::-1][::-1, ::-1],  # negative strides
        Image.fromarray(COLOUR),
        channels_first(),
        channels_first().float() / 255,
        channels_first().double() / 255,
    ],
    ids=["uint8", "float64", "float32", "alpha", "strides", "PIL", "tensor", "float tensor", "double tensor"],
)
def test_every_form_of_a_colour_image_gives_pillows_luma(image: Any) -> None:
    grey = read_image(image)
    np.testing.assert_array_equal(np.asarray(grey), LUMA)
    assert grey.dtype in (np.uint8, torch.uint8)


@pytest.mark.parametrize(
    "image",
    [LUMA, LUMA[:, :, None], LUMA / 255, torch.from_numpy(LUMA), torch.from_numpy(LUMA)[None] / 255],
    ids=["uint8", "one channel", "float", "tensor", "kornia's tensor"],
)
def test_every_form_of_a_grey_image_is_itself(image: Any) -> None:
    np.testing.assert_array_equal(np.asarray(read_image(image)), LUMA)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_an_opened_image_is_turned_upright_as_its_file(tmp_path: Path, suffix: str) -> None:
    path, exif = tmp_path / f"turned{suffix}", Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(COLOUR[:300]).save(path, exif=exif)
    with Image.open(path) as image:
        stored = np.asarray(image)
        grey = read_image(image)
        assert image.size == (512, 300)  # that of the user is not changed
        np.testing.assert_array_equal(grey, read_image(ImageOps.exif_transpose(image)))
    np.testing.assert_array_equal(grey, read_image(path))
    np.testing.assert_array_equal(grey, read_image(np.rot90(stored, -1)))


def test_a_mirrored_row_can_be_a_tensor() -> None:
    """NumPy calls it contiguous, whatever its strides."""
    row = np.array(LUMA[:1])
    np.testing.assert_array_equal(torch.from_numpy(np.require(read_image(row[::-1]), requirements="C")), row)


def test_half_precision_loses_less_than_a_grey_level() -> None:
    grey = read_image(torch.from_numpy(LUMA).half() / 255)
    assert np.abs(np.asarray(grey).astype(int) - LUMA).max() <= 1


def test_sixteen_bit_is_scaled_as_in_files_and_bool_is_black_and_white(tmp_path: Path) -> None:
    deep = LUMA.astype(np.uint16) * 16  # data of 12 bit
    Image.fromarray(deep).save(tmp_path / "deep.png")
    np.testing.assert_array_equal(np.asarray(read_image(deep)), np.asarray(read_image(tmp_path / "deep.png")))
    np.testing.assert_array_equal(np.asarray(read_image(deep.astype(">u2"))), np.asarray(read_image(deep)))
    assert np.unique(np.asarray(read_image(LUMA > 99))).tolist() == [0, 255]


def test_the_alpha_of_sixteen_bit_does_not_scale_the_colours() -> None:
    deep = COLOUR.astype(np.uint16) * 16  # data of 12 bit
    opaque = np.dstack([deep, np.full(deep.shape[:2], 65535, np.uint16)])
    np.testing.assert_array_equal(read_image(opaque), read_image(deep))
    opaque[:, :, 3] = 0
    assert np.unique(np.asarray(read_image(opaque))).tolist() == [128]


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((5, 5, 2), np.uint8), r"\(H, W, 4\), not \(5, 5, 2\)"),
        (np.zeros(9, np.uint8), "an image must be"),
        (None, "an image must be a path, a PIL image, an array or a tensor, not NoneType"),
        (np.zeros((0, 5), np.uint8), "an image must be"),
        (np.zeros((5, 5), np.int64), "or float in 0..1, not int64"),
        (np.full((5, 5), 200.0), r"values in 0\.\.1, not 200\.\.200; divide"),
        (np.full((5, 5), np.nan), r"values in 0\.\.1"),
        (np.full((5, 5), -0.1), r"values in 0\.\.1"),
        (torch.zeros(5, 5, 3), r"\(3, H, W\), of a batch"),
        (torch.zeros(5, 5, dtype=torch.int32), r"uint8, or float in 0\.\.1, not torch.int32"),
        (torch.full((5, 5), 255.0), r"not 255\.\.255"),
        (torch.full((5, 5), torch.nan), r"values in 0\.\.1"),
    ],
)
def test_other_shapes_types_and_ranges_are_refused(image: Any, message: str) -> None:
    with pytest.raises(DoapError, match=message):
        read_image(image)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_floats_may_leave_their_range_by_rounding(dtype: torch.dtype) -> None:
    above, below = 1 + 0.49 / 255, -0.49 / 255
    for value, expected in ((1 + 1e-6, 255), (above, 255), (-1e-7, 0), (below, 0)):
        image = torch.full((5, 5), value, dtype=dtype)
        assert np.unique(np.asarray(read_image(image))).tolist() == [expected]
        assert np.unique(np.asarray(read_image(image.numpy()))).tolist() == [expected]
    with pytest.raises(DoapError, match=r"in 0\.\.1, not 1\.003\d*\.\.1\.003\d*; divide"):
        read_image(torch.full((5, 5), 1.003, dtype=torch.float64))


def test_lists_and_batches_are_several_images() -> None:
    assert split_images(LUMA) is None
    assert split_images(torch.zeros(3, 9, 9)) is None
    assert split_images("a.png") is None
    assert split_images(["a.png", LUMA]) == ["a.png", LUMA]
    batch = split_images(torch.zeros(2, 3, 9, 9))
    assert batch is not None
    assert [tuple(image.shape) for image in batch if isinstance(image, torch.Tensor)] == [(3, 9, 9)] * 2


def mean_areas(image: NDArray[np.float64], height: int) -> NDArray[np.float64]:
    """Average the rows between equally spaced edges, as differences of the integral."""
    integral = np.vstack([np.zeros(image.shape[1]), np.cumsum(image, 0)])
    edges = np.linspace(0, len(image), height + 1)
    at_edges = [np.interp(edges, np.arange(len(integral)), column) for column in integral.T]
    return np.asarray(np.diff(np.stack(at_edges, 1), axis=0) * height / len(image))


@pytest.mark.parametrize("max_size", [400, 333, 256, 77])
def test_images_are_reduced_by_the_area_of_pixels(photo: Grey, max_size: int) -> None:
    image = photo[:300, :411]
    array, tensor = shrink_image(image, max_size), shrink_image(torch.from_numpy(image), max_size)
    assert max(array.shape) == min(max_size, 411)
    assert abs(array.shape[0] / array.shape[1] - 300 / 411) < 0.01
    oracle = mean_areas(mean_areas(image.astype(np.float64), array.shape[0]).T, array.shape[1]).T
    for reduced in (array, tensor):
        assert np.abs(np.asarray(reduced) - oracle).max() <= 0.51  # rounding, and OpenCV's neglect of thin slivers


def test_small_images_are_not_reduced(photo: Grey) -> None:
    assert shrink_image(photo, None) is photo
    assert shrink_image(photo, 512) is photo
    assert np.asarray(shrink_image(np.zeros((3, 1000), np.uint8), 100)).shape == (1, 100)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (torch.eye(4).to_sparse(), "must be dense and have values"),
        (torch.zeros(4, 4, device="meta"), "must be dense and have values"),
        (torch.eye(4).to(torch.float8_e4m3fn), "must be uint8, or float in 0..1, not torch.float8_e4m3fn"),
    ],
    ids=["sparse", "meta", "float8"],
)
def test_tensors_that_cannot_be_read_are_one_line(image: torch.Tensor, message: str) -> None:
    with pytest.raises(DoapError, match=message):
        read_image(image)
