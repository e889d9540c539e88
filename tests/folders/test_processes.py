"""Real processes: the same bytes with any engine and number of workers, and after workers or the run were killed."""

import io
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from doap.cli.main import main
from doap.folders import FeatureCollection, MatchCollection
from doap.parallel import open_engine
from folders.conftest import write_photos

pytestmark = pytest.mark.slow

DOAP = str(Path(sys.executable).parent / "doap")
MODEL = ("--model", "doap-demo-128", "--max-keypoints", "150", "--device", "cpu")


def doap_here(*arguments: object, workers: int = 1) -> str:
    """Run the command in this process, which takes less time; return what it printed."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(sys, "argv", ["doap", *map(str, arguments), "--workers", str(workers)])
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    return printed.getvalue()


def descendants(parent: int) -> list[int]:
    """Return the processes below a process."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    tree = {parent}
    for _ in range(6):
        tree |= {pid for pid, above in parents.items() if above in tree}
    return sorted(tree - {parent})


def workers(parent: int) -> list[int]:
    """Return the processes below the fork server of a process."""
    return [pid for child in descendants(parent) for pid in descendants(child)]


def wait_for(count: int, folder: Path, process: "subprocess.Popen[bytes]") -> None:
    """Wait until there are so many archives in a folder and below."""
    for _ in range(1200):
        if len(list(folder.rglob("*.npz"))) >= count:
            return
        assert process.poll() is None
        time.sleep(0.05)
    raise AssertionError("nothing was described in a minute")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty photos in `many`, and their features and matches by one process, `f.h5` and `m.h5`."""
    folder = tmp_path_factory.mktemp("base")
    for number in range(4):
        write_photos(folder / "many" / str(number))
    doap_here("describe", folder / "many", "-o", folder / "f.h5", *MODEL)
    doap_here("match", folder / "f.h5", "--retrieve", 3, "-o", folder / "m.h5")
    return folder


def test_the_bytes_do_not_depend_on_the_number_of_workers(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, matches = tmp_path / "f.h5", tmp_path / "m.h5"
    use_processes(monkeypatch)
    printed = doap_here("describe", base / "many", "-o", features, *MODEL, workers=3)
    assert "20 of 20 images described" in printed
    doap_here("match", features, "--retrieve", 3, "-o", matches, workers=3)
    assert_same_bytes(features, matches, base)


def test_the_bytes_do_not_depend_on_the_engine(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features, matches, ray = tmp_path / "f.h5", tmp_path / "m.h5", ("--engine", "ray")
    use_processes(monkeypatch)
    with open_engine("ray", 2):  # which both commands use: starting Ray takes many seconds
        printed = doap_here("describe", base / "many", "-o", features, *MODEL, *ray, workers=2)
        doap_here("match", features, "--retrieve", 3, "-o", matches, *ray, workers=2)
    assert "20 of 20 images described" in printed
    assert_same_bytes(features, matches, base)


def use_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands in this process use the real engines, in place of that of these tests."""
    for module in ("describing", "matching"):
        monkeypatch.setattr(f"doap.folders.{module}.open_engine", open_engine)


def assert_same_bytes(features: Path, matches: Path, base: Path) -> None:
    assert features.read_bytes() == (base / "f.h5").read_bytes()
    assert matches.read_bytes() == (base / "m.h5").read_bytes()


def test_a_killed_worker_loses_nothing(base: Path, tmp_path: Path) -> None:
    command = [DOAP, "describe", str(base / "many"), "-o", str(tmp_path / "f.h5"), *MODEL, "--workers", "2"]
    with subprocess.Popen(command) as process:
        wait_for(2, tmp_path / ".f.h5.parts", process)
        for pid in workers(process.pid):
            os.kill(pid, signal.SIGKILL)
        assert process.wait(120) == 0
    assert (tmp_path / "f.h5").read_bytes() == (base / "f.h5").read_bytes()


@pytest.mark.parametrize("output", ["f.h5", "f"])
def test_a_killed_run_continues(base: Path, tmp_path: Path, output: str) -> None:
    command = [DOAP, "describe", str(base / "many"), "-o", str(tmp_path / output), *MODEL]
    parts = tmp_path / (".f.h5.parts" if output == "f.h5" else "f")
    with subprocess.Popen([*command, "--workers", "2"]) as process:
        wait_for(3, parts, process)
        process.kill()
    assert not (tmp_path / "f.h5").exists()
    shown = doap_here(*command[1:])
    assert "20 of 20 images described" in shown
    assert "of them by an earlier run" in shown
    if output == "f.h5":
        assert (tmp_path / output).read_bytes() == (base / "f.h5").read_bytes()
        assert not parts.exists()
    else:
        assert FeatureCollection(tmp_path / output).stamps == FeatureCollection(base / "f.h5").stamps


def test_killed_matching_continues(base: Path, tmp_path: Path) -> None:
    command = [DOAP, "match", str(base / "f.h5"), "--retrieve", "3", "-o", str(tmp_path / "m.h5")]
    with subprocess.Popen([*command, "--workers", "2"]) as process:
        wait_for(2, tmp_path / ".m.h5.parts", process)
        process.kill()
    doap_here(*command[1:])
    assert (tmp_path / "m.h5").read_bytes() == (base / "m.h5").read_bytes()
    assert len(MatchCollection(tmp_path / "m.h5")) > 20


def _limited(limit: int, arguments: list[str]) -> None:
    """Run the command with a limit on the size of files, which is an error of writing like a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    os.execv(DOAP, arguments)


@pytest.mark.parametrize("limit", [60_000, 300_000])  # in an archive, and in the packed file
def test_a_full_disk_is_one_line_and_the_run_continues(
    base: Path, tmp_path: Path, limit: int, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [DOAP, "describe", str(base / "many"), "-o", str(tmp_path / "f.h5"), *MODEL]
    limited = (limit, [*command, "--workers", "1"])
    process = multiprocessing.get_context("spawn").Process(target=_limited, args=limited)
    process.start()
    process.join(120)
    assert process.exitcode == 1
    *progress, error = capfd.readouterr().err.splitlines()
    assert all(line.startswith("describing: ") for line in progress)
    assert "cannot be written (File too large); what is done is kept" in error
    assert not (tmp_path / "f.h5").exists()
    doap_here(*command[1:])
    assert (tmp_path / "f.h5").read_bytes() == (base / "f.h5").read_bytes()
