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
