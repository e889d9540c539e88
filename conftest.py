"""Settings of all tests: modules that are searched for examples, and the number of workers."""

import os
from importlib.util import find_spec

import pytest

# Modules with Triton kernels are searched only where there is Triton.
collect_ignore_glob = [] if find_spec("triton") else ["src/doap/**/triton_*.py"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one worker more than cores: some tests wait for processes, a browser or the disk."""
    return (os.cpu_count() or 1) + 1
