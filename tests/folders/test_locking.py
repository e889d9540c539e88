"""Two runs never write the same output."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from doap.errors import DoapError
from doap.folders import FeatureCollection, all_pairs, describe_folder, match_pairs
from doap.locking import only_writer
from folders.conftest import SETTINGS

HOLD = """
import sys, time
from pathlib import Path
from doap.locking import only_writer
with only_writer(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("name", ["f.h5", "features"])
def test_a_second_run_is_refused_and_changes_nothing(photos: Path, tmp_path: Path, name: str) -> None:
    output = tmp_path / name
    with only_writer(output):
        with pytest.raises(DoapError, match=rf"{name}: another process is writing it"):
            describe_folder(photos, output, SETTINGS)
        assert not output.exists()
    assert describe_folder(photos, output, SETTINGS).described == 5
    assert not list(tmp_path.glob(".*"))


def test_matches_have_one_writer(described: Path, tmp_path: Path) -> None:
    pairs = all_pairs(FeatureCollection(described).names)
    with only_writer(tmp_path / "m.h5"), pytest.raises(DoapError, match=r"m\.h5: another process is writing it"):
        match_pairs(described, pairs, tmp_path / "m.h5")


def test_a_killed_process_frees_the_output(tmp_path: Path) -> None:
    output = tmp_path / "f.h5"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(output)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(DoapError, match="another process"), only_writer(output):
            pass
        os.kill(process.pid, signal.SIGKILL)
    with only_writer(output):
        pass
    assert not list(tmp_path.iterdir())


def test_a_forked_process_does_not_keep_the_output(tmp_path: Path) -> None:
    with only_writer(tmp_path / "f.h5"):
        child = os.fork()
        if not child:
            signal.pause()
    try:
        with only_writer(tmp_path / "f.h5"):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_link_has_the_lock_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "features")
    held = only_writer(tmp_path / "elsewhere" / "features")
    with held, pytest.raises(DoapError, match="link: another process"), only_writer(tmp_path / "link"):
        pass


def test_the_current_folder_can_be_locked_and_the_root_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "features"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with only_writer(Path()), pytest.raises(DoapError, match="another process"), only_writer(folder):
        pass
    with pytest.raises(DoapError, match="/: is the root"), only_writer(Path("/")):
        pass


def test_the_current_folder_can_be_described_to(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "features"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert describe_folder(photos, ".", SETTINGS).described == 5


DIE = """
import os, sys
from pathlib import Path
from doap.files import atomic_file
from doap.locking import only_writer
output = Path(sys.argv[1])
with only_writer(output, inside="." not in output.name):
    with atomic_file(output if "." in output.name else output / "checkpoint.safetensors") as temporary:
        temporary.write_bytes(b"half")
        os._exit(9)
"""


@pytest.mark.parametrize("name", ["f.h5", "run"])
def test_the_next_run_removes_what_a_killed_one_left(tmp_path: Path, name: str) -> None:
    output = tmp_path / name
    assert subprocess.run([sys.executable, "-c", DIE, str(output)], check=False).returncode == 9
    folder = output if name == "run" else tmp_path
    own = [folder / own for own in (".notes.txt", ".env-template", "checkpoint-12345678.safetensors")]
    if name != "run":
        own.append(folder / ".doap-tmp-f-12345678")  # of another output, f
    for path in own:
        path.write_text("of the user")
    assert len(list(folder.glob(".doap-tmp-*-????????.*"))) == 1
    with only_writer(output, inside=name == "run"):
        assert sorted(folder.iterdir()) == sorted([*own, *folder.glob(".*lock")])


def test_a_folder_of_features_keeps_nothing_of_a_killed_run(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "features"
    describe_folder(photos, output, SETTINGS)
    names = sorted(output.rglob("*"))
    (names[-1].parent / ".doap-tmp-a.png.npz-12345678.npz").write_bytes(b"half")
    (output / ".doap-tmp-collection.json-12345678.json").write_bytes(b"half")
    describe_folder(photos, output, SETTINGS)
    assert sorted(output.rglob("*")) == names
