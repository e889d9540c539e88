from pathlib import Path

import numpy as np
import pytest
import skimage
from numpy.typing import NDArray
from PIL import Image

import doap
from doap.images.extraction import extract_patches
from doap.types import Grey
from support.small_models import untrained


def test_images_are_paths_arrays_or_pil_images(tmp_path: Path) -> None:
    with Image.open(Path(skimage.__file__).parent / "data" / "astronaut.png") as picture:
        colour = np.asarray(picture)[:200, :200]
    Image.fromarray(colour).save(tmp_path / "a.png")
    model = untrained()
    from_path, from_array, from_pil = (
        doap.detect_and_describe(image, model, 50) for image in (tmp_path / "a.png", colour, Image.fromarray(colour))
    )
    np.testing.assert_array_equal(from_path.frames, from_array.frames)
    np.testing.assert_array_equal(from_path.descriptors, from_pil.descriptors)
    assert from_path.size == (200, 200)


@pytest.mark.parametrize(("extents", "expected"), [({"dog": 5.0, "harris": 3.0}, 5.0), ({"harris": 3.0}, 12.0)])
def test_patches_are_extracted_at_the_extent_of_the_detector(
    photo: Grey, extents: dict[str, float], expected: float
) -> None:
    model = untrained(extents=extents)
    features = doap.detect_and_describe(photo, model, 30)
    patches = extract_patches(photo, features.frames, model.input_size, expected)
    np.testing.assert_array_equal(features.descriptors, doap.describe_patches(patches, model))


@pytest.mark.parametrize("image", [np.zeros((5, 5, 2), np.uint8), np.zeros((50, 50)), np.zeros(9, np.uint8)])
def test_arrays_of_other_shapes_or_types_are_refused(image: NDArray[np.uint8]) -> None:
    with pytest.raises(doap.DoapError, match="an image must be"):
        doap.detect_and_describe(image, untrained())


def test_an_image_without_keypoints_is_named() -> None:
    with pytest.raises(doap.DoapError, match="wall: no keypoint found in 60x50 pixels; is it flat or tiny"):
        doap.detect_and_describe(np.full((50, 60), 9, np.uint8), untrained(), name="wall")
