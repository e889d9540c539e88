import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import doap
from doap.networks.conversion import convert
from doap.networks.conversion.reading import MAX_BYTES
from support.published_networks import hardnet


class Command:
    """Runs a command when it is unpickled without care."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.marker}",)


def write_bomb(path: Path) -> None:
    """Write an archive of zeros, small on disk and too large in memory."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("archive/data/0", "w") as entry:
        for _ in range(MAX_BYTES // (1 << 24) + 1):
            entry.write(bytes(1 << 24))


def write_repeated(path: Path) -> None:
    """Write a checkpoint with one number repeated a billion times."""
    torch.save({"features.0.weight": torch.zeros(1).expand(1 << 30)}, path)


def write_truncated(path: Path) -> None:
    torch.save(hardnet().state_dict(), path)
    path.write_bytes(path.read_bytes()[:-5000])


def write_truncated_old(path: Path) -> None:
    torch.save(hardnet().state_dict(), path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[:-5000])


def write_short_numbers(path: Path) -> None:
    """Write a checkpoint of the old format that ends within the length of a storage."""
    torch.save({"w": torch.ones(3)}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[:-17])


HOSTILE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "module": ("x.pth", lambda path: torch.save(hardnet(), path), "not a checkpoint of tensors only"),
    "truncated": ("x.pth", write_truncated, "not a readable checkpoint; is it truncated"),
    "truncated, old": ("x.pth", write_truncated_old, "x.pth: not a"),
    "ends in a number": ("x.pth", write_short_numbers, "not a readable checkpoint"),
    "empty": ("x.pth", lambda path: path.write_bytes(b""), "not a readable checkpoint"),
    "text": ("x.pth", lambda path: path.write_text("<html>404</html>"), "x.pth: not a"),
    "bomb": ("x.pth", write_bomb, "MB of content"),
    "repeated": ("x.pth", write_repeated, "larger than those of known networks"),
    "folder": ("x.pth", lambda path: path.mkdir(), "is a folder"),
    "nothing": ("x.pth", lambda _: None, "no such file"),
    "tensor": ("x.pth", lambda path: torch.save(torch.ones(3), path), "holds no state dict"),
    "no tensors": ("x.pth", lambda path: torch.save({}, path), "holds no state dict"),
    "numbers": ("x.pth", lambda path: torch.save({"epoch": 3}, path), "its entry 'epoch' is not a dense tensor"),
    "sparse": ("x.pth", lambda path: torch.save({"w": torch.ones(2, 2).to_sparse()}, path), "not a dense tensor"),
    "complex": ("x.pth", lambda path: torch.save({"w": torch.ones(2) * 1j}, path), "not a dense tensor"),
    "damaged": ("x.safetensors", lambda path: path.write_bytes(b"12345678{}"), "not a safetensors file"),
    "no MATLAB": ("x.mat", lambda path: path.write_bytes(b"MATLAB 5.0" + bytes(200)), "not a readable MATLAB file"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_checkpoint_is_refused_in_one_line_and_nothing_is_written(tmp_path: Path, case: str) -> None:
    name, write, message = HOSTILE[case]
    write(tmp_path / name)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(doap.DoapError, match=message) as caught:
        convert(tmp_path / name, tmp_path / "new.safetensors")
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("old", [False, True])
def test_code_in_a_checkpoint_is_not_executed(tmp_path: Path, old: bool) -> None:
    marker, source = tmp_path / "executed", tmp_path / "trap.pth"
    trap = {"state_dict": hardnet().state_dict(), "optimizer": Command(marker)}
    torch.save(trap, source, _use_new_zipfile_serialization=not old)
    with pytest.raises(doap.DoapError, match="a pickle can execute code"):
        convert(source, tmp_path / "new.safetensors")
    source.write_bytes(pickle.dumps(Command(marker)))
    with pytest.raises(doap.DoapError, match="not a checkpoint of tensors only"):
        convert(source, tmp_path / "new.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["trap.pth"]
    assert pickle.loads(source.read_bytes()) == 0  # the trap works
    assert marker.exists()
