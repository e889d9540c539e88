"""A small folder of photos, described once, and an engine without processes."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import skimage
from PIL import Image

from doap.folders import DescribeSettings, describe_folder

Task = TypeVar("Task")
Result = TypeVar("Result")
SETTINGS = DescribeSettings(model="doap-demo-128", max_keypoints=150)


class InProcess:
    """Engine that runs tasks in this process; starting workers takes seconds.

    Args:
        deadly: Text of tasks that would end their worker; none by default.
    """

    workers = 1

    def __init__(self, deadly: str | None = None) -> None:
        self.deadly = deadly

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        look_ahead: int | None = None,
        died: Callable[[Task], Result] | None = None,
    ) -> Iterator[Result]:
        """Run the tasks one after another; none of them ends this process."""
        assert look_ahead is None
        for task in tasks:
            if self.deadly is not None and self.deadly in str(task):
                assert died is not None
                yield died(task)
            else:
                yield function(task)

    def start(self, function: Callable[[Task], object], tasks: Iterable[Task]) -> None:
        """Start nothing: the first image loads the model."""


@contextmanager
def open_in_process(name: str, workers: int | None = None) -> Iterator[InProcess]:
    """Stand in for `open_engine`."""
    assert name == "local"
    assert workers in (None, 1)
    yield InProcess()


@pytest.fixture(autouse=True, scope="session")
def _in_process() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("doap.folders.describing.open_engine", open_in_process)
        patch.setattr("doap.folders.matching.open_engine", open_in_process)
        yield


def write_photos(folder: Path) -> Path:
    """Write five overlapping crops of two photos, in nested folders, two of them with the same file name."""
    camera, coffee = skimage.data.camera(), skimage.data.coffee()[:, :, 1]
    crops = {
        "a.png": camera[:300, :300],
        "b c/a.png": camera[40:340, 30:330],
        "b c/ü.png": camera[20:320, 60:360],
        "d/e/x.jpg": coffee[:300, :300],
        "d/y.jpg": coffee[30:330, 40:340],
    }
    for name, crop in crops.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.ascontiguousarray(crop)).save(path, quality=95)
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of five photos."""
    return write_photos(tmp_path / "photos")


@pytest.fixture(scope="session")
def described(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features of the five photos in an HDF5 file; do not change it."""
    folder = tmp_path_factory.mktemp("described")
    describe_folder(write_photos(folder / "photos"), folder / "features.h5", SETTINGS, workers=1)
    return folder / "features.h5"
