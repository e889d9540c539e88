"""Fixtures of the objectives' tests: the device and the seed."""

import os
from collections.abc import Iterator

import pytest
import torch

# cuBLAS needs it for deterministic algorithms.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # faster on small problems
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device(request.param)
