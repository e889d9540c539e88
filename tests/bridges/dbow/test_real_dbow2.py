"""Our files and bags of words beside DBoW2 itself, as compiled into ORB-SLAM3.

Needs the package orbslam3-python: pip install --no-deps orbslam3-python==2.0.0
"""

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from doap.bridges.dbow import Vocabulary, score, write_vocabulary
from support import real_dbow2

Bits = NDArray[np.uint8]
Results = dict[str, NDArray[Any]]


def library() -> Path:
    """Return the path of ORB-SLAM3's library; skip the test without it."""
    try:
        listed = files("orbslam3-python") or []
    except PackageNotFoundError:
        pytest.skip("needs ORB-SLAM3: pip install --no-deps orbslam3-python==2.0.0")
    return next(Path(str(path.locate())) for path in listed if path.name.startswith("libORB_SLAM3"))


def run_dbow2(vocabulary: Path, images: list[Bits], folder: Path) -> Results:
    """Return what DBoW2 finds for images; see `support.real_dbow2`."""
    path = library()
    np.savez(folder / "images.npz", *images)
    arguments = map(str, (real_dbow2.__file__, path, vocabulary, folder / "images.npz", folder / "result.npz"))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(path.parent)}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=120)
    if "cannot open shared object file" in done.stderr:
        pytest.skip(f"ORB-SLAM3 needs a library: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    with np.load(folder / "result.npz") as archive:
        return dict(archive)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["voc.txt", "voc.yml", "voc.yml.gz"])
def test_dbow2_reads_our_files(tmp_path: Path, images: list[Bits], vocabulary: Vocabulary, name: str) -> None:
    write_vocabulary(vocabulary, tmp_path / name)
    real = run_dbow2(tmp_path / name, images, tmp_path)
    assert (int(real["nodes"]), int(real["words"])) == (len(vocabulary.parents), len(vocabulary))
    words = vocabulary.find_words(np.concatenate(images))
    np.testing.assert_array_equal(real["found"], np.column_stack([words, vocabulary.word_weights[words]]))
    bags = [vocabulary.transform(descriptors) for descriptors in images]
    np.testing.assert_array_equal(real["bag_sizes"], [len(bag.words) for bag in bags])
    np.testing.assert_array_equal(real["bags"][:, 0], np.concatenate([bag.words for bag in bags]))
    np.testing.assert_allclose(real["bags"][:, 1], np.concatenate([bag.values for bag in bags]), rtol=1e-14)
    scores = [[score(first, second) for second in bags] for first in bags]
    np.testing.assert_allclose(real["scores"], scores, rtol=1e-13)
