"""What the tests share: one seed, pictures, and the way to test data that is not in the repository."""

from pathlib import Path

import numpy as np
import pytest
import skimage
import torch

SHARED = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def oxford() -> Path:
    """The Oxford image sequences, where they lie beside the repository."""
    folder = SHARED / "oxford"
    if not folder.is_dir():
        pytest.skip(f"needs the Oxford sequences in {folder}")
    return folder


@pytest.fixture(scope="session")
def hpatches_patches() -> Path:
    """Official HPatches patches, the sequence i_contruction, where they lie beside the repository."""
    folder = SHARED / "hpatches-patches"
    if not (folder / "i_contruction").is_dir():
        pytest.skip(f"needs i_contruction of HPatches in {folder}")
    return folder


@pytest.fixture
def hpatches_tasks() -> Path:
    """The official splits and task lists of HPatches, where they lie beside the repository."""
    folder = SHARED / "hpatches-tasks"
    if not folder.is_dir():
        pytest.skip(f"needs the task lists of HPatches in {folder}")
    return folder


@pytest.fixture
def hpatches_sequences() -> Path:
    """Image sequences of HPatches, where they lie beside the repository."""
    folder = SHARED / "hpatches-sequences"
    if not folder.is_dir():
        pytest.skip(f"needs image sequences of HPatches in {folder}")
    return folder


@pytest.fixture(scope="session")
def photo() -> np.ndarray:
    """A grey photograph, 512x512."""
    return skimage.data.camera()
