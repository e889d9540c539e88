"""A small folder of photos, described and matched once per module, without processes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import skimage
from PIL import Image

from doap.folders import DescribeSettings, all_pairs, describe_folder, match_pairs
from folders.conftest import open_in_process

NAMES = ["empty.png", "left.png", "sub/right.png"]
SETTINGS = DescribeSettings("doap-tiny-256b", max_keypoints=300, max_size=250)


@pytest.fixture(autouse=True, scope="module")
def _in_process() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("doap.folders.describing.open_engine", open_in_process)
        patch.setattr("doap.folders.matching.open_engine", open_in_process)
        patch.setattr("doap.folders.describing.start_loading", lambda *_: None)
        yield


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stereo pair of 300 x 400 pixels, the right one in a subfolder, and an image without keypoints."""
    folder = tmp_path_factory.mktemp("hloc") / "images"
    (folder / "sub").mkdir(parents=True)
    left, right, _ = skimage.data.stereo_motorcycle()
    for name, image in (("left.png", left), ("sub/right.png", right)):
        Image.fromarray(image[100:400, 100:500]).convert("L").save(folder / name)
    Image.fromarray(np.zeros((60, 80), np.uint8)).save(folder / "empty.png")
    return folder


@pytest.fixture(scope="module")
def described(photos: Path) -> Path:
    path = photos.parent / "features.h5"
    describe_folder(photos, path, SETTINGS, workers=1)
    return path


@pytest.fixture(scope="module")
def matched(described: Path) -> Path:
    path = described.parent / "matches.h5"
    match_pairs(described, all_pairs(NAMES), path, workers=1)
    return path
