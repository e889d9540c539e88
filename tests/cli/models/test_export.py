"""`doap export`: what it prints, and what it refuses."""

import struct
import sys
from pathlib import Path

import pytest
import torch

from doap.networks.int8 import operands
from support.command_line import Doap


def test_a_model_is_exported_and_replaced(doap: Doap, tmp_path: Path) -> None:
    precision = ("--precision", "int8-without-vnni")
    arguments = ("export", "doap-tiny-128", "-o", "new/tiny.onnx", "--graph", "image", *precision)
    assert doap(*arguments)[:2] == (
        0,
        "new/tiny.onnx: doap-tiny-128, image and frames, extent 24 to 128 dimensions, int8-without-vnni, 0.2 MB\n",
    )
    assert doap("export", "doap-tiny-256b", "-o", "new/tiny.onnx", *precision)[:2] == (
        0,
        "new/tiny.onnx: doap-tiny-256b, patches to 256 bits, int8-without-vnni, 0.2 MB\n",
    )
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["tiny.onnx"]


@pytest.mark.parametrize("exact", [True, False])
def test_cpus_that_need_the_other_int8_are_told(exact: bool, doap: Doap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operands, "sums_are_exact", lambda types: exact or types != "u8s8")
    status, output, _ = doap("export", "doap-tiny-128", "-o", "tiny.onnx", "--precision", "int8")
    assert (status, "use --precision int8-without-vnni" in output) == (0, not exact)


@pytest.mark.parametrize("suffix", ["onnx", "pt2", "pt"])
def test_a_file_of_another_program_is_replaced_only_with_force(suffix: str, doap: Doap, tmp_path: Path) -> None:
    damaged = b"damaged" + b"PK\x05\x06" + struct.pack("<4H2LH", 0, 0, 1, 1, 4, 3, 0)  # the end of a zip archive
    for content in (damaged, b"theirs"):
        (tmp_path / f"theirs.{suffix}").write_bytes(content)
        status, _, errors = doap("export", "doap-tiny-128", "-o", f"theirs.{suffix}")
        assert (status, errors.count("\n")) == (1, 1)
        assert f"theirs.{suffix}: exists and was not exported by doap" in errors
        assert (tmp_path / f"theirs.{suffix}").read_bytes() == content
    if suffix == "pt2":  # the slowest
        return
    options = ("--precision", "int8") if suffix == "onnx" else ()
    assert doap("export", "doap-tiny-128", "-o", f"theirs.{suffix}", *options, "--force")[0] == 0
    assert doap("export", "doap-tiny-128", "-o", f"theirs.{suffix}", *options)[0] == 0  # ours now


def test_errors_are_one_line(doap: Doap, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.onnx").mkdir()
    for arguments, message in (
        (("doap-9", "-o", "new.onnx"), "doap-9"),
        (("rootsift", "-o", "new.onnx"), "rootsift: a handcrafted baseline has no network to export"),
        (("doap-128", "-o", "new.bin"), "new.bin: must end in .onnx (onnx), .pt2 (torch-export), .pt (torchscript)"),
        (("doap-128", "-o", "new.onnx", "--format", "torchscript"), "new.onnx: a file of format torchscript must end"),
        (("doap-128", "-o", "file/new.onnx", "--precision", "int8"), "file: cannot create this folder"),
        (("doap-128", "-o", "folder.onnx"), "folder.onnx: is a folder"),
        (("doap-128", "-o", "new.pt", "--graph", "image"), "new.pt: the image graph is for ONNX only"),
        (("doap-128", "-o", "new.pt2", "--precision", "int8"), "new.pt2: int8 is for ONNX only"),
        (("doap-128", "-o", "new.onnx", "--extent", "9"), "an extent is for the image graph only"),
        (("doap-128", "-o", "new.onnx", "--graph", "image", "--extent", "nan"), "the extent must be positive"),
        (("doap-st-128", "-o", "new.onnx", "--precision", "int8"), "doap-st-128: TransformedNetwork has no int8 form"),
    ):
        status, _, errors = doap("export", *arguments)
        assert (status, errors.count("\n")) == (1, 1), errors
        assert message in errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.onnx"]


@pytest.mark.parametrize("library", ["onnx", "onnxscript"])
def test_a_missing_library_is_one_line(library: str, doap: Doap, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("doap.bridges.onnx") or name == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    status, _, errors = doap("export", "doap-tiny-128", "-o", "new.onnx")
    assert (status, errors) == (1, f"doap: {library} is not installed; run: pip install 'doap[onnx]'\n")


@pytest.mark.parametrize("suffix", ["onnx", "pt2"])
def test_an_old_torch_is_one_line(suffix: str, doap: Doap, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    assert doap("export", "doap-tiny-128", "-o", f"new.{suffix}") == (
        1,
        "",
        "doap: torch 2.5.1+cpu is too old to export; run: pip install 'torch>=2.6'\n",
    )
    assert not list(tmp_path.iterdir())
