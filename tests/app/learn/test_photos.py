"""Which of the uploaded photos can be trained on."""

import numpy as np
import pytest

from doap.app.learn.photos import split_photos
from doap.demo import photos
from doap.errors import DoapError
from doap.types import Grey

FLAT: Grey = np.full((200, 200), 128, np.uint8)


def textured(count: int) -> list[tuple[str, Grey]]:
    return photos.read_photos(photos.TEST)[:count]


def halves(image: Grey) -> list[Grey]:
    return [image[:, : image.shape[1] // 2], image[:, image.shape[1] // 2 :]]


def test_a_fifth_is_kept_for_validation_and_nothing_is_in_both_parts() -> None:
    images = [(f"{name} {i}", half) for name, image in textured(4) for i, half in enumerate(halves(image))]
    split = split_photos(images, 300)
    names = [photo.name for photo in split.train], [photo.name for photo in split.val]
    assert sorted(names[0] + names[1]) == sorted(name for name, _ in images)
    assert len(names[1]) == 2
    assert all(60 <= len(photo.frames) <= 300 for photo in (*split.train, *split.val))
    assert split.left_out == []


def test_flat_and_repeated_photos_are_left_out_with_a_reason() -> None:
    images = textured(4)
    name, image = images[0]
    darker: Grey = (image * 0.7 + 20).astype(np.uint8)
    split = split_photos([*images, ("flat", FLAT), ("copy", darker)], 300)
    assert len(split.train) + len(split.val) == 4
    assert split.left_out == [
        "flat: only 0 keypoints; is it flat, blurred or tiny?",
        f"copy: looks the same as {name}",
    ]


def test_too_few_usable_photos_are_one_line() -> None:
    with pytest.raises(DoapError, match=r"3 usable photos \(flat: only 0 keypoints.*\); choose at least 4") as error:
        split_photos([*textured(3), ("flat", FLAT)], 300)
    assert "\n" not in str(error.value)


def test_a_slow_machine_takes_few_keypoints_of_each_photo_but_refuses_none() -> None:
    split = split_photos(textured(4), 10)
    assert {len(photo.frames) for photo in (*split.train, *split.val)} == {60}


def test_many_reasons_are_counted() -> None:
    with pytest.raises(DoapError, match=r"0 usable photos \(.*; and 5 more\)"):
        split_photos([(f"flat {number}", FLAT) for number in range(8)], 300)
