"""The fastest mode of describing leaves a benchmark's figure where it is."""

from pathlib import Path

import numpy as np
import pytest

import doap
from doap.datasets.official.hpatches import STRIPS
from doap.datasets.official.opening import open_any
from doap.datasets.sets.patch_set import PatchSet
from doap.evaluation.hpatches.distances import to_device
from doap.evaluation.hpatches.matching import matching
from doap.networks.fast import fastest

ROWS = 400


def some_rows(patches: PatchSet) -> PatchSet:
    """The first rows of each strip of a folder with one sequence."""
    rows = len(patches) // len(STRIPS)
    return patches.part(np.arange(len(patches)) % rows < ROWS)


@pytest.mark.parametrize("name", ["doap-demo-128", "doap-demo-256b"])
def test_it_hardly_changes_matching(
    name: str, hpatches_patches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path))
    patches = some_rows(open_any(hpatches_patches))
    pixels = patches.take(np.arange(len(patches)))
    model = doap.load(name)
    means = []
    for each in (model, fastest(model)):
        scores = matching(to_device(doap.describe(pixels, each), "cpu"), patches)
        means.append(np.mean([float(score["value"] or 0) for score in scores if score["rule"] == "fair"]))
    assert means[0] > 20
    assert abs(means[0] - means[1]) < 0.2  # of 400 points; 0.1 holds for all
