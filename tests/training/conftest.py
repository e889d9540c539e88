"""Sets, and a training that was never interrupted, shared by the tests."""

from pathlib import Path

import pytest

from doap import FrameSet, PatchSet
from doap.datasets.build.assembly import frame_set_from_photos
from doap.datasets.build.cutting import cut_patches
from doap.images.frames import detect_dog
from doap.training.trainer import train
from doap.types import Grey
from support.trainings import SMALL, VALIDATED, noisy_patches


@pytest.fixture(scope="session")
def noise() -> PatchSet:
    """Three noisy views of each of 120 points, in six sequences."""
    return noisy_patches()


@pytest.fixture(scope="session")
def photo_set(tmp_path_factory: pytest.TempPathFactory, photo: Grey) -> Path:
    """Folder of a patch set: four views of points in the two halves of a photo, one sequence each."""
    path = tmp_path_factory.mktemp("data") / "set"
    halves = [("left", photo[:, :256]), ("right", photo[:, 256:])]
    cut_patches(frame_set_from_photos(halves, lambda image: detect_dog(image, 80)), path)
    return path


@pytest.fixture(scope="session")
def patches(photo_set: Path) -> PatchSet:
    return PatchSet.open(photo_set)


@pytest.fixture(scope="session")
def frames(photo: Grey) -> FrameSet:
    """Frames of the two halves of a photo, one sequence each."""
    halves = [("a", photo[:, :256]), ("b", photo[:, 256:])]
    return frame_set_from_photos(halves, lambda image: detect_dog(image, 80))


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory, patches: PatchSet) -> Path:
    """Run folder of the small recipe on `patches`, never interrupted; not to be written to."""
    run = tmp_path_factory.mktemp("reference") / "run"
    train(SMALL, patches, run)
    return run


@pytest.fixture(scope="session")
def validated(tmp_path_factory: pytest.TempPathFactory, patches: PatchSet) -> Path:
    """As `reference`, with moving average, validation scenes and three epochs."""
    run = tmp_path_factory.mktemp("validated") / "run"
    train(VALIDATED, patches, run)
    return run
