"""Forked processes.

The threads of OpenMP do not exist in a forked process. A child of a process that has computed with them waits for them
for ever at its first parallel loop, whether in torch or in faiss. With a single thread there is no such loop.
"""

import os
import sys


def use_one_thread_after_fork() -> None:
    """Make every process that is forked from now on compute on one thread; other processes are not affected."""
    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(after_in_child=_use_one_thread)


def _use_one_thread() -> None:
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    if faiss := sys.modules.get("faiss"):
        faiss.omp_set_num_threads(1)
