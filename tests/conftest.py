"""Fixtures of all tests: one seed, a photo, and the data beside the repository."""

import gc
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np
import pytest
import skimage
import torch

from doap import onednn
from doap.types import Grey
from support.clean_environment import CleanEnvironment, make_core_environment, make_examples_environment
from support.local_server import Site, serving

SHARED = Path(__file__).parents[2] / "shared" / "data"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without the garbage collector, and keep it from what was made for them.

    What is imported stays until the end; looking through it again and again took a seventh of the time of collecting.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _seed() -> None:
    # Without a GPU, torch.manual_seed also stores the stack of its call for a later one: a hundred times slower.
    if torch.cuda.is_available():
        torch.manual_seed(0)
    else:
        torch.default_generator.manual_seed(0)


@pytest.fixture(autouse=True)
def _gpu(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture(autouse=True)
def _onednn() -> Iterator[None]:
    """Fail a test after which torch's fast kernels are off in this process, which changes what later tests compute."""
    yield
    enabled = onednn.is_enabled()
    torch.backends.mkldnn.set_flags(True)  # type: ignore[no-untyped-call]
    assert enabled, "oneDNN was disabled"


def beside(*path: str) -> Path:
    """Return a folder of data beside the repository; skip the test without it."""
    folder = SHARED.joinpath(*path)
    if not folder.is_dir():
        pytest.skip(f"needs data in {folder}")
    return folder


@pytest.fixture
def oxford() -> Path:
    """The Oxford image sequences."""
    return beside("oxford")


@pytest.fixture(scope="session")
def hpatches_patches() -> Path:
    """Official HPatches patches: the sequence i_contruction."""
    return beside("hpatches-patches", "i_contruction").parent


@pytest.fixture
def hpatches_tasks() -> Path:
    """The official splits and task lists of HPatches."""
    return beside("hpatches-tasks")


@pytest.fixture
def hpatches_sequences() -> Path:
    """Image sequences of HPatches."""
    return beside("hpatches-sequences")


@pytest.fixture(scope="session")
def published_baselines() -> Path:
    """Published weights of baselines."""
    return beside("..", "peers")


@pytest.fixture
def south_building() -> Path:
    """Overlapping photos of a building."""
    return beside("sfm", "south_building")


@pytest.fixture(scope="session")
def core_environment(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> CleanEnvironment:
    """An environment with the wheel alone."""
    folder = tmp_path_factory.getbasetemp()
    return make_core_environment(folder if worker_id == "master" else folder.parent)


@pytest.fixture(scope="session")
def examples_environment(core_environment: CleanEnvironment) -> CleanEnvironment:
    """An environment with the wheel and what the examples ask for."""
    return make_examples_environment(core_environment)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A web server on loopback whose responses a test sets."""
    monkeypatch.setenv("no_proxy", "*")
    with serving() as server:
        yield server


@pytest.fixture(scope="session")
def photo() -> Grey:
    """A grey photograph, 512x512."""
    return np.asarray(skimage.data.camera())
