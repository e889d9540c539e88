import subprocess
import sys
from pathlib import Path

import pytest

from doap.errors import DoapError
from doap.files import atomic_file, atomic_folder, make_folder, write_text


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "result.txt"
    write_text(target, "before")
    with pytest.raises(RuntimeError), atomic_file(target) as temporary:
        temporary.write_text("half of what")
        raise RuntimeError
    assert target.read_text() == "before"
    assert list(target.parent.iterdir()) == [target]


def test_a_file_keeps_its_suffix_while_temporary(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "figure.png") as temporary:
        assert temporary.suffix == ".png"
        temporary.write_bytes(b"x")
    assert (tmp_path / "figure.png").read_bytes() == b"x"


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), atomic_folder(tmp_path / "set") as temporary:
        (temporary / "part").write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with atomic_folder(tmp_path / "set") as temporary:
        (temporary / "part").write_text("whole")
        (temporary / "below").mkdir()
        (temporary / "below" / "part").write_text("whole too")
    assert (tmp_path / "set" / "part").read_text() == "whole"
    assert (tmp_path / "set" / "below" / "part").read_text() == "whole too"
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


def test_an_existing_folder_is_replaced_on_request_only(tmp_path: Path) -> None:
    target = tmp_path / "set"
    target.mkdir()
    (target / "old").write_text("old")
    with pytest.raises(DoapError, match="exists already"), atomic_folder(target):
        pass
    with pytest.raises(RuntimeError), atomic_folder(target, replace=True):
        raise RuntimeError
    assert [path.name for path in target.iterdir()] == ["old"]
    with atomic_folder(target, replace=True) as temporary:
        (temporary / "new").write_text("new")
        assert [path.name for path in target.iterdir()] == ["old"]
    assert [path.name for path in target.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_under_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DoapError, match="cannot create"):
        make_folder(tmp_path / "file" / "below")


def kill_while_writing(target: Path, marker: str) -> Path:
    """Write a folder in a process that is killed inside the block, and return the temporary folder it leaves."""
    program = (
        "import os, sys; from pathlib import Path; from doap.files import atomic_folder\n"
        "with atomic_folder(Path(sys.argv[1]), replace=True) as temporary:\n"
        "    (temporary / sys.argv[2]).write_text('half')\n"
        "    print(temporary, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    run = subprocess.run([sys.executable, "-c", program, str(target), marker], capture_output=True, text=True)
    assert run.returncode == -9, run.stderr
    return Path(run.stdout.strip())


def test_leftovers_of_a_killed_process_are_removed_by_the_next(tmp_path: Path) -> None:
    leftover = kill_while_writing(tmp_path / "set", "part")
    other = kill_while_writing(tmp_path / "set-b", "part")
    assert leftover.is_dir()
    with atomic_folder(tmp_path / "set") as temporary:
        assert set(tmp_path.iterdir()) == {temporary, other}
    assert set(tmp_path.iterdir()) == {tmp_path / "set", other}


def test_a_folder_that_is_still_written_is_not_removed(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "set") as first:
        (first / "part").write_text("of the first")
        with pytest.raises(RuntimeError), atomic_folder(tmp_path / "set") as second:
            assert second != first
            raise RuntimeError
        assert (first / "part").exists()
    assert (tmp_path / "set" / "part").read_text() == "of the first"
    assert list(tmp_path.iterdir()) == [tmp_path / "set"]


def test_hidden_folders_of_the_user_are_not_removed(tmp_path: Path) -> None:
    own = [tmp_path / name for name in (".set-settings", ".set.building", ".set-notes.tmp", "set-abcdefgh.tmp")]
    for folder in own:
        folder.mkdir()
    with atomic_folder(tmp_path / "set"):
        pass
    assert set(tmp_path.iterdir()) == {*own, tmp_path / "set"}


def test_content_is_restored_if_a_process_was_killed_while_it_replaced_it(tmp_path: Path) -> None:
    target = tmp_path / "set"
    leftover = kill_while_writing(target, "new")
    old = leftover.with_suffix(".old")  # what the process renames just before
    old.mkdir()
    (old / "before").write_text("whole")
    with pytest.raises(DoapError, match="exists already"), atomic_folder(target):
        pass
    assert (target / "before").read_text() == "whole"
    assert list(tmp_path.iterdir()) == [target]
