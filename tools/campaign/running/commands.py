"""Commands on tiny inputs, which later parts kill, starve and run at once, and what of their output is compared."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import skimage
from PIL import Image

from campaign.running.preloaded import SECONDS
from support.local_server import serving
from support.sets.hostile_archives import zipped
from support.sets.official_formats import write_half
from support.sets.small_official_sets import make_phototour
from support.trainings import noisy_patches

TINY = ("network=tiny", "width=8", "dimensions=16", "batch_size=64", "precision=fp32")
LAUNCHER = Path(__file__).with_name("launcher.py")


@dataclass(frozen=True)
class Command:
    """A command under attack.

    Attributes:
        name: Name in results.
        words: Its arguments; paths are relative to the work folder.
        output: Its output in the work folder.
        compared: Files of the output that must have the same bytes, relative to the work folder; for a database, the
            same rows.
        again: Arguments that continue an interrupted run; None for the same.
        is_started: Whether an interrupted run can be continued by `again`, given the work folder.
        growing: Beginnings of the names of compared files that differ until the command has ended.
        processes: Processes that share the work, started by torchrun or by the command.
    """

    name: str
    words: Sequence[str]
    output: str
    compared: Callable[[Path], dict[str, str]]
    again: Sequence[str] | None = None
    is_started: Callable[[Path], bool] = lambda _folder: True
    growing: tuple[str, ...] = ()
    processes: int = 1

    def differences(self, folder: Path, expected: Mapping[str, str]) -> list[str]:
        """Return the names of compared files that are missing or differ."""
        actual = self.compared(folder)
        return sorted(name for name in {*actual, *expected} if actual.get(name) != expected.get(name))

    def continuation(self, folder: Path) -> Sequence[str]:
        """Return the arguments that continue what is in a work folder."""
        return self.again if self.again and self.is_started(folder) else self.words


def write_inputs(folder: Path) -> None:
    """Write the inputs of all commands into an empty folder."""
    camera, coffee = skimage.data.camera(), skimage.data.coffee()[:, :, 1]
    crops = (camera[:220], camera[30:250, 20:], camera[10:230, 50:], coffee[:220], coffee[20:240, 30:])
    for number, crop in enumerate(crops):
        path = folder / "photos" / f"{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.ascontiguousarray(crop[:, :220])).save(path)
    noisy_patches().save(folder / "set")
    names = sorted(path.relative_to(folder / "photos").as_posix() for path in (folder / "photos").rglob("*.png"))
    lines = [f"{first} {second}\n" for i, first in enumerate(names) for second in names[i + 1 :]]
    (folder / "pairs.txt").write_text("".join(lines))
    for number, half in enumerate(("train", "test")):
        write_half(folder / "data" / "romepatches", half, seed=number)
    make_phototour(folder / "served")


def prepare(folder: Path) -> None:
    """Write the inputs, and the features that matching needs."""
    (folder / "data").mkdir(parents=True)
    write_inputs(folder)
    run_to_end(_DESCRIBE, folder, {})
    (folder / "out.h5").rename(folder / "features.h5")


@contextmanager
def served(folder: Path) -> Iterator[dict[str, str]]:
    """Serve a small copy of Phototour in a folder, and yield the variables that lead to it."""
    content = {f"release/{path.name}": path.read_bytes() for path in sorted(folder.iterdir())}
    with serving() as site:
        yield {"DOAP_CAMPAIGN_URL": site.put("liberty.zip", zipped(content)), "no_proxy": "*"}


def run_to_end(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float = SECONDS
) -> "subprocess.CompletedProcess[str]":
    """Run a command in a work folder and return its status and what it printed."""
    process = start(words, folder, environment)
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        stop(process)
        output, errors = process.communicate()
        errors += f"\nstopped after {seconds:g} seconds"
    return subprocess.CompletedProcess(list(words), process.returncode, output, errors)


def start(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], prefix: Sequence[str] = ()
) -> "subprocess.Popen[str]":
    """Start a command in a work folder, in a session of its own."""
    return subprocess.Popen(
        [*prefix, sys.executable, str(LAUNCHER), *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "DOAP_CACHE": str(folder / "cache"), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def stop(process: "subprocess.Popen[str]") -> None:
    """Kill a command with all its processes."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def fresh_copy(inputs: Path, folder: Path) -> Path:
    """Return a work folder with the inputs of all commands."""
    shutil.rmtree(folder, ignore_errors=True)
    return Path(shutil.copytree(inputs, folder))


def hash_files(*patterns: str, without: Sequence[str] = ()) -> Callable[[Path], dict[str, str]]:
    """Return a function that hashes the files of a work folder that match one of the patterns."""

    def compare(folder: Path) -> dict[str, str]:
        paths = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
        return {
            path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in paths
            if path.name not in without
        }

    return compare


def hash_database(folder: Path) -> dict[str, str]:
    """Hash the rows of all tables of a COLMAP database; their place in the file depends on the order of writing."""
    import sqlite3
    from contextlib import closing

    path = folder / "project" / "database.db"
    if not path.exists():
        return {}
    with closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr) for name in sorted(tables)}
    return {name: hashlib.sha256(repr(values).encode()).hexdigest() for name, values in rows.items()}


_MODEL = ("--model", "doap-demo-128", "--max-keypoints", "80", "--device", "cpu", "--workers", "2")
_DESCRIBE = ("describe", "photos", "-o", "out.h5", *_MODEL)
_SETTINGS = [word for setting in (*TINY, "epochs=20", "val_fraction=0.5") for word in ("--set", setting)]

_TRAIN = Command(
    "train",
    ("train", "photos-real", "--data", "set", "-o", "run", "--device", "cpu", *_SETTINGS),
    "run",
    hash_files("run/weights.safetensors", "run/best.safetensors", "run/log.csv", "run/validation.csv"),
    ("train", "--resume", "run"),
    lambda folder: (folder / "run" / "recipe.yaml").exists(),
    growing=("run/best.safetensors", "run/log.csv", "run/validation.csv"),
)

COMMANDS: tuple[Command, ...] = (
    Command("describe", _DESCRIBE, "out.h5", hash_files("out.h5")),
    Command(
        "match --pairs",
        ("match", "features.h5", "--pairs", "pairs.txt", "-o", "matches.h5", "--workers", "2"),
        "matches.h5",
        hash_files("matches.h5"),
    ),
    Command(
        "data build",
        ("data", "build", "photos", "-o", "built", "--points", "60", "--workers", "2"),
        "built",
        hash_files("built/**/*"),
    ),
    _TRAIN,
    replace(_TRAIN, name="train, two processes", words=(*_TRAIN.words, "--devices", "2"), processes=2),
    Command(
        "colmap",
        ("colmap", "photos", "-o", "project", "--no-refine", *_MODEL),
        "project",
        hash_database,
        growing=("",),
    ),
    Command(
        "data download",
        ("data", "download", "phototour-liberty", "-o", "downloaded"),
        "downloaded",
        hash_files("downloaded/phototour-liberty/**/*", "downloaded/phototour-liberty.sha256"),
    ),
    Command(
        "reproduce",
        ("reproduce", "table-2", "--data", "data", "-o", "paper", "--quick", "--set", "width=2", "--device", "cpu"),
        "paper",
        hash_files("paper/quick/runs/**/weights.safetensors"),
    ),
)
"""Those that leave results; the weights of `reproduce` stand for its results, which name times."""
