"""A folder with everything that the commands of the documentation read, small."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import skimage
from PIL import Image

from doap import train
from doap.datasets.sets.writer import write_patch_set
from support.pages import DOCS
from support.trainings import SMALL, noisy_patches

NAMES = [
    "astronaut",
    "brick",
    "camera",
    "chelsea",
    "coffee",
    "coins",
    "grass",
    "gravel",
    "moon",
    "page",
    "rocket",
    "text",
]
FEW = ["astronaut", "brick", "moon"]
SIDE = 112  # pixels; of smaller crops, twenty keypoints are not found in each


def write_photos(folder: Path, names: list[str]) -> None:
    """Write small crops of photos of scikit-image."""
    folder.mkdir(parents=True)
    for name in names:
        photo = getattr(skimage.data, name)()
        top, left = ((length - SIDE) // 2 for length in photo.shape[:2])
        crop = Image.fromarray(photo[top : top + SIDE, left : left + SIDE])
        crop.convert("RGB").save(folder / f"{name}.jpg", quality=95)


def write_set(path: Path) -> None:
    """Write a small patch set of six sequences."""
    patches = noisy_patches()
    with write_patch_set(path, 32) as writer:
        writer.append(patches.take(np.arange(len(patches))), patches.groups, patches.sequences)


@pytest.fixture(scope="session")
def written_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, written once."""
    folder = tmp_path_factory.mktemp("workspace")
    write_photos(folder / "photos", NAMES)  # a collection of single photos needs twelve
    for name in ("held-out", "my-photos", "day1"):
        write_photos(folder / name, FEW)
    (folder / "day2").mkdir()
    shutil.copy(folder / "day1" / "moon.jpg", folder / "day2" / "moon2.jpg")
    (folder / "masks" / "day1").mkdir(parents=True)
    with Image.open(folder / "day1" / "moon.jpg") as moon:
        Image.new("L", moon.size, 255).save(folder / "masks" / "day1" / "moon.jpg.png")
    left, right = (Image.fromarray(image[150:400, 100:420]) for image in skimage.data.stereo_motorcycle()[:2])
    for first, second in (("left", "right"), ("front", "side"), ("a", "b"), ("my-photos/left", "my-photos/right")):
        left.save(folder / f"{first}.jpg", quality=95)
        right.save(folder / f"{second}.jpg", quality=95)
    pair = folder / "my-pairs" / "one"
    pair.mkdir(parents=True)
    left.save(pair / "1.png")
    left.save(pair / "2.png")
    np.savetxt(pair / "H.txt", np.eye(3))
    (folder / "pairs.txt").write_text("astronaut.jpg brick.jpg\n")
    (folder / "results").mkdir()
    shutil.copy(DOCS / "results" / "oxford-dog.json", folder / "results")
    (folder / "mine.yaml").write_text(SMALL.to_yaml())
    for name in ("mine", "patches"):
        write_set(folder / "sets" / name)
    train(SMALL, noisy_patches(), folder / "runs" / "mine")
    for name in ("real", "l2net"):
        shutil.copytree(folder / "runs" / "mine", folder / "runs" / name)
    return folder


@pytest.fixture
def workspace(written_workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder, as the working directory."""
    folder = tmp_path / "work"
    shutil.copytree(written_workspace, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    return folder
