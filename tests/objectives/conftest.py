"""What the objectives' tests share: the devices to run on."""

import os
from collections.abc import Iterator

import pytest
import torch

# What cuBLAS asks for before it can be told to be deterministic.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the problems are small: waiting for a second thread would cost more than it saves
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device(request.param)
