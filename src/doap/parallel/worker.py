"""What runs in a worker process: a task, with one thread."""

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing import parent_process
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

# Read by the libraries when they are loaded.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OPENCV_FOR_THREADS_NUM": "1",
}


def run_task(function: Callable[[Task], Result], task: Task) -> Result:
    """Run a task with one thread.

    Raises:
        Exception: The exception of the task, or a RuntimeError with its text if it cannot be sent to the caller.
    """
    use_one_thread()
    try:
        return function(task)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            raise RuntimeError(f"{type(error).__name__}: {error}") from None
        raise


def run_pickled(payload: bytes) -> object:
    """Run a pickled pair of a function and its task; reading it here raises errors of reading as the task's own."""
    function, task = pickle.loads(payload)
    return run_task(function, task)


def use_one_thread() -> None:
    """Limit torch and OpenCV to one thread, if they are loaded, and libraries loaded later by the environment."""
    os.environ.update(ONE_THREAD)
    if (torch := sys.modules.get("torch")) is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    if (cv2 := sys.modules.get("cv2")) is not None and cv2.getNumThreads() != 1:
        cv2.setNumThreads(1)


def prepare_worker() -> None:
    """Prepare a local worker: it leaves Ctrl-C to its parent, and ends when its parent does, however that ends.

    It runs before the first task is unpickled, hence before torch, OpenMP and OpenCV are loaded in a spawned process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(ONE_THREAD)
    end_with_parent()


def end_with_parent() -> None:
    """Let this process, started by `multiprocessing`, end when the one that started it does, even if that is killed."""
    parent = parent_process()
    assert parent is not None

    def wait_for_end() -> None:
        parent.join()
        os._exit(1)  # an exception would end this thread alone

    threading.Thread(target=wait_for_end, daemon=True).start()
