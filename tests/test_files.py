import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from doap.errors import DoapError
from doap.files import (
    atomic_file,
    atomic_folder,
    check_figure_format,
    check_output,
    is_temporary_file,
    make_folder,
    printable,
    remove_temporary_files,
    write_figure,
    write_text,
)


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
    names = (".set-settings", ".set.building", ".set-notes.tmp", ".set-template.tmp", ".set-12345678.old")
    own = [tmp_path / name for name in (*names, "set-abcdefgh.tmp")]
    for folder in own:
        folder.mkdir()
    with atomic_folder(tmp_path / "set"):
        pass
    assert set(tmp_path.iterdir()) == {*own, tmp_path / "set"}


USERS = (".env-template", ".my-settings", ".docker-override.yml", ".set-12345678.png", ".doap-tmp", ".doap-tmp-notes")


def test_hidden_files_of_the_user_are_not_removed(tmp_path: Path) -> None:
    for name in USERS:
        (tmp_path / name).write_text("of the user")
    with atomic_file(tmp_path / "set.png") as temporary:
        left = tmp_path / f"{temporary.stem[:-8]}01234567.png"  # as of a killed process
        left.touch()
    remove_temporary_files(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*USERS, "set.png"}


def test_temporary_files_are_told_apart_by_their_whole_targets(tmp_path: Path) -> None:
    targets = ("features", "features.h5", "features.npz", "features.h5-b", "a" * 255, "a" * 251 + ".png")
    names = {}
    for target in targets:
        with atomic_file(tmp_path / target) as temporary:
            names[temporary.name] = target
    for name, own in names.items():
        assert is_temporary_file(name)
        assert [target for target in targets if is_temporary_file(name, target)] == [own]


def test_the_umask_holds_for_outputs_and_is_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patch:
            patch.delattr(os, "umask")  # which would hold for the files of other threads as well
            write_text(tmp_path / "file", "")
            with atomic_folder(tmp_path / "folder"):
                pass
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o750


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


LONGEST = {"ascii": "a" * 251 + ".txt", "letters of two bytes": "ü" * 125 + "a.txt", "suffix": "a." + "b" * 253}


@pytest.mark.parametrize("name", LONGEST.values(), ids=LONGEST)
def test_the_longest_names_can_be_written(tmp_path: Path, name: str) -> None:
    assert len(os.fsencode(name)) == 255
    write_text(tmp_path / name, "text")
    with atomic_folder(tmp_path / "below" / name) as folder:
        (folder / "part").write_text("part")
    assert {path.name for path in tmp_path.iterdir()} == {name, "below"}
    assert (tmp_path / "below" / name / "part").read_text() == "part"


def test_leftovers_of_another_long_name_are_kept(tmp_path: Path) -> None:
    first, second = ("a" * 250 + str(number) for number in range(2))
    leftover = kill_while_writing(tmp_path / first, "half")
    with atomic_folder(tmp_path / second):
        pass
    assert leftover.exists()
    with atomic_folder(tmp_path / first):
        pass
    assert not leftover.exists()


def test_errors_of_writing_name_the_file(tmp_path: Path) -> None:
    target = tmp_path / "result.npy"
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limit[1]))  # as a full disk, writing fails without a name
    try:
        with pytest.raises(OSError, match=r"File too large: '.*/result\.npy'"):
            write_text(target, "x" * (1 << 17))
        with pytest.raises(OSError, match=r"'.*/result\.npy'"), atomic_file(target) as temporary:
            np.save(temporary, np.zeros(1 << 17, np.uint8))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    with pytest.raises(FileNotFoundError, match=r"/result\.npy'"), atomic_file(target) as temporary:
        temporary.unlink()
    with pytest.raises(FileNotFoundError, match="other"), atomic_file(target):
        (tmp_path / "other").read_text()
    assert list(tmp_path.iterdir()) == []


def test_outputs_are_checked_without_a_trace(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, message in (
        (tmp_path, "is a folder"),
        (tmp_path / "file" / "below" / "a.png", "file is a file, not a folder"),
        (tmp_path / ("a" * 252 + ".png"), "more than 255 bytes"),
        (Path("/proc/a.png"), "cannot be written to /proc"),
    ):
        with pytest.raises(DoapError, match=message):
            check_output(path)
    check_output(tmp_path / "file")
    check_figure_format(tmp_path / "new" / "deep" / "a.png")
    with pytest.raises(DoapError, match="is a file, not a folder"):
        check_figure_format(tmp_path / "file" / "a.png")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_names_in_figures_may_have_dollar_signs(tmp_path: Path, suffix: str) -> None:
    name = r"$\wrong{ of $5 $$"
    figure = Figure(layout="constrained")
    axes = figure.subplots()
    axes.plot([1, 2], label=name)
    axes.set_xticks([0, 1], [name, name])
    axes.set_title(name)
    axes.annotate(name, (0, 1))
    axes.legend(title=name)
    figure.suptitle(name)
    write_figure(figure, tmp_path / f"figure.{suffix}")
    assert (tmp_path / f"figure.{suffix}").stat().st_size > 1000


def test_names_are_escaped_for_terminals() -> None:
    name = "a\nb\x1b[31m\x7f\x9bc\u2028\udcff é$.jpg"
    assert printable(name) == r"a\x0ab\x1b[31m\x7f\u009bc\u2028\xff é$.jpg"


def test_a_symbolic_link_stays_and_leads_to_the_output(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    file, folder = tmp_path / "file.txt", tmp_path / "folder"
    for link, name in ((file, "a.txt"), (folder, "b")):
        link.symlink_to(tmp_path / "elsewhere" / name)
    for content in ("first", "second"):  # what a link leads to need not exist
        write_text(file, content)
        with atomic_folder(folder, replace=True) as temporary:
            (temporary / content).write_text(content)
        assert (tmp_path / "elsewhere" / "a.txt").read_text() == content
        assert [path.name for path in (tmp_path / "elsewhere" / "b").iterdir()] == [content]
    with pytest.raises(DoapError, match="folder: exists already"), atomic_folder(folder):
        pass
    assert file.is_symlink()
    assert folder.is_symlink()
    names = ["a.txt", "b", "elsewhere", "file.txt", "folder", "second"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == names


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that root cannot write to")
def test_errors_of_folders_that_cannot_be_written_name_the_output(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/proc/output")
    for target in (Path("/proc/output"), link):
        with pytest.raises(FileNotFoundError, match=f"'{target}'"):
            write_text(target, "")
        with pytest.raises(FileNotFoundError, match=f"'{target}'"), atomic_folder(target):
            pass
