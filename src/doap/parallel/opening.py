"""Choice of an engine."""

from collections.abc import Iterator
from contextlib import contextmanager

from doap.errors import DoapError, check_choice
from doap.parallel.engine import ENGINES, Engine, EngineName, available_cores


@contextmanager
def open_engine(name: EngineName, workers: int | None = None) -> Iterator[Engine]:
    """Open an engine; its workers start with the first tasks and end with the block.

    Args:
        name: "local" starts processes on this machine. "ray" joins the Ray cluster of the environment variable
            RAY_ADDRESS ("auto" for one that runs on this machine); without the variable, Ray is started here.
        workers: Number of processes; by default one per available core. A cluster that runs already uses all of its
            cores, whatever the number.

    Raises:
        DoapError: For an unknown name, fewer than one worker, or a cluster that cannot be reached.
    """
    check_choice("engine", name, ENGINES)
    if workers is not None and workers < 1:
        raise DoapError(f"{workers} workers: at least one is needed")
    if name == "ray":
        from doap.parallel.ray_engine import open_ray

        with open_ray(workers) as cluster:
            yield cluster
    else:
        from doap.parallel.local_engine import open_local

        with open_local(workers or available_cores()) as processes:
            yield processes
