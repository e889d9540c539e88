from pathlib import Path

import torch

import doap as package
from support.command_line import Doap
from support.published_networks import hardnet


def test_published_weights_become_a_model_and_what_is_unknown_is_said(doap: Doap, tmp_path: Path) -> None:
    torch.save(hardnet().state_dict(), tmp_path / "HardNet++.pth")
    status, shown, _ = doap("convert", "HardNet++.pth", "-o", "new.safetensors", "--extent", "6", "--licence", "MIT")
    assert status == 0
    lines = shown.splitlines()
    assert lines[0].startswith("new.safetensors: converted from the layout of HardNet: HardNet++.pth, SHA-256 ")
    assert lines[1:] == ["not in the weights, and not given: training data (--data)"]
    status, shown, _ = doap("models", "new.safetensors")
    assert (status, shown.splitlines()[0]) == (0, "new")
    everything = ("--extent", "6", "--licence", "MIT", "--data", "Liberty", "--name", "HardNet++")
    status, shown, _ = doap("convert", "HardNet++.pth", "-o", "full.safetensors", *everything)
    assert (status, shown.count("\n")) == (0, 1)
    assert package.load(tmp_path / "full.safetensors").name == "HardNet++"


def test_a_model_is_binarised(doap: Doap, tmp_path: Path) -> None:
    status, shown, _ = doap("convert", "doap-demo-128", "-o", "bits.safetensors", "--binarise", "--name", "bits")
    assert (status, shown.count("\n")) == (0, 1)
    assert "binarised by the sign of the activations, from doap-demo-128" in shown
    assert package.load(tmp_path / "bits.safetensors").kind == "binary"


def test_errors_are_one_line(doap: Doap, tmp_path: Path) -> None:
    (tmp_path / "page.pth").write_text("<html>")
    for arguments, message in (
        (("page.pth",), "page.pth: not a"),
        (("doap-demo-256b", "--binarise"), "binary already"),
        (("doap-demo-128", "--binarise", "--extent", "3"), "--binarise takes --name only"),
        (("page.pth", "--binarise"), "see doap convert"),
        (("page.pth", "--centre-surround"), "only the .mat files of L2-Net"),
        (("page.pth", "--extent", "0"), "--extent must be positive and finite, up to 1000, not 0.0"),
        (("page.pth", "--extent", "nan"), "must be positive"),
    ):
        status, _, errors = doap("convert", *arguments, "-o", "new.safetensors")
        assert (status, errors.count("\n")) == (1, 1)
        assert message in errors
    assert [path.name for path in tmp_path.iterdir()] == ["page.pth"]
