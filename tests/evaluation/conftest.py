"""Fixtures shared by the tests of benchmarks."""

from pathlib import Path

import numpy as np
import pytest

from doap.datasets.official.hpatches import STRIPS, convert_hpatches
from doap.datasets.sets.patch_set import PatchSet

ROWS = 200


@pytest.fixture(scope="session")
def official_sequence(hpatches_patches: Path, tmp_path_factory: pytest.TempPathFactory) -> PatchSet:
    """The first 200 rows of each strip of an official HPatches sequence."""
    folder = tmp_path_factory.mktemp("hpatches") / "set"
    convert_hpatches(hpatches_patches, folder)
    patches = PatchSet.open(folder)
    rows = len(patches) // len(STRIPS)
    return patches.select(np.arange(len(patches)) % rows < ROWS)
