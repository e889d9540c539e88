"""Forked children of a process that has computed: they compute too, instead of waiting for threads for ever."""

import os
import signal
import subprocess
import sys

import pytest

CODE = """
import multiprocessing, sys
import numpy as np
import doap

def numbers(image):
    features = doap.detect_and_describe(image, model, max_keypoints=100)
    matches = doap.match(features, features, geometry=None)
    {search}
    return len(features), len(matches)

if __name__ == "__main__":
    image = np.kron(np.random.default_rng(0).integers(0, 255, (20, 30), np.uint8), np.ones((8, 8), np.uint8))
    model = doap.load("doap-tiny-128")
    import torch
    torch.set_num_threads(2)
    own = numbers(image)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(numbers, [image] * 3) == [own] * 3
        assert pool.apply(torch.get_num_threads) == 1
    assert torch.get_num_threads() == 2  # the parent is as it was
    assert own[0] == own[1] > 20
"""


@pytest.mark.slow  # two processes are started
@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
@pytest.mark.parametrize("library", ["torch", "faiss"])
def test_forked_processes_describe_and_match(library: str) -> None:
    if library == "faiss":
        pytest.importorskip("faiss")
    search = "import faiss; faiss.knn(*[np.ones((4000, 64), np.float32)] * 2, 2)" if library == "faiss" else ""
    command = [sys.executable, "-W", "ignore", "-c", CODE.replace("{search}", search)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        _, errors = process.communicate(timeout=90)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # also the children, which wait for ever
        raise
    assert (process.returncode, errors) == (0, "")
