"""What several trainings of the tests are on."""

import numpy as np
import pytest

from doap import PatchSet


@pytest.fixture
def patches() -> PatchSet:
    """Three noisy views of each of 120 points, in six sequences."""
    random = np.random.default_rng(0)
    views = random.normal(128, 40, (120, 1, 32, 32)) + random.normal(0, 15, (120, 3, 32, 32))
    pixels = np.clip(views, 0, 255).astype(np.uint8).reshape(-1, 32, 32)
    return PatchSet([pixels], np.arange(360) // 3, np.arange(360) // 60)
