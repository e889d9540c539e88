"""Every command with --extent refuses the same values, before any work."""

from pathlib import Path

import pytest

from support.command_line import Doap

COMMANDS = (
    ("data", "build", ".", "-o", "out"),
    ("convert", "weights.pth", "-o", "out.safetensors"),
    ("export", "doap-128", "-o", "out.onnx", "--graph", "image"),
    ("study", "objectives", "--data", ".", "--val", ".", "-o", "out"),
    ("eval", "oxford", "sift", "--data", "."),
    ("eval", "pairs", "sift", "--data", "."),
)


@pytest.mark.parametrize("extent", ["inf", "nan", "-3", "0", "1e9"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_an_invalid_extent_is_one_line(doap: Doap, tmp_path: Path, command: tuple[str, ...], extent: str) -> None:
    (tmp_path / "weights.pth").write_bytes(b"")
    status, _, errors = doap(*command, "--extent", extent)
    assert status in (1, 2)  # 2: a number out of the range that the help shows
    assert "extent" in errors
    assert "Traceback" not in errors
    assert [path.name for path in tmp_path.iterdir()] == ["weights.pth"]
