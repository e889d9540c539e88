import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from doap import PatchSet
from doap.cli.main import app, main
from doap.datasets.official.hpatches import STRIPS, write_hpatches_folder
from support.command_line import Doap


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def official(tmp_path: Path) -> Path:
    patches = np.random.default_rng(0).integers(0, 256, (9, 65, 65), dtype=np.uint8)
    write_hpatches_folder(tmp_path / "hpatches" / "i_dome", dict.fromkeys(STRIPS, patches))
    return tmp_path / "hpatches"


def test_help_has_an_example() -> None:
    shown = CliRunner().invoke(app, ["data", "show", "--help"])
    assert shown.exit_code == 0
    assert "Example: doap data show" in " ".join(shown.output.split())


def test_an_official_folder_is_shown(official: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "sheets" / "sheet.png"
    shown = CliRunner().invoke(app, ["data", "show", str(official), "-o", str(sheet), "--groups", "4", "--seed", "3"])
    assert shown.exit_code == 0, shown.output
    assert f"4 groups of PatchSet(144 patches of 65x65, 9 groups, 1 sequence) in {sheet}" in shown.output
    with Image.open(sheet) as image:
        assert image.width > 16 * 65
        assert 4 * 65 < image.height < 5 * 71


def test_a_patch_set_is_shown(tmp_path: Path) -> None:
    PatchSet([np.zeros((6, 32, 32), np.uint8)], [0, 0, 1, 1, 2, 2]).save(tmp_path / "set")
    shown = CliRunner().invoke(app, ["data", "show", str(tmp_path / "set"), "-o", str(tmp_path / "sheet.png")])
    assert shown.exit_code == 0, shown.output
    assert "3 groups of PatchSet(6 patches of 32x32" in shown.output


def test_info_of_an_official_folder(official: Path) -> None:
    for _ in range(2):
        shown = CliRunner().invoke(app, ["data", "info", str(official), "--verify"])
        assert shown.exit_code == 0, shown.output
        assert "groups of 16 to 16 patches" in shown.output
        assert "labels: image, noise" in shown.output
        assert "every checksum is correct" in shown.output


@pytest.mark.parametrize("command", [["info"], ["show", "-o", "sheet.png"]])
def test_an_error_is_one_line(
    official: Path, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (official / "i_dome" / "h4.png").write_bytes(b"")
    monkeypatch.chdir(official)
    monkeypatch.setattr(sys, "argv", ["doap", "data", *command, str(official)])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr().err
    assert ended.value.code == 1
    assert shown.startswith("doap: ")
    assert "h4.png: not an image" in shown
    assert shown.count("\n") == 1
    assert not (official / "sheet.png").exists()


def test_names_that_are_not_utf8_or_hold_control_codes_are_printed(doap: Doap, tmp_path: Path) -> None:
    PatchSet([np.zeros((2, 8, 8), np.uint8)], [0, 1]).save(tmp_path / os.fsdecode(b"set\xe9\x1b[31m"))
    status, shown, _ = doap("data", "list", tmp_path)
    assert status == 0
    assert r"patch set in" in shown
    assert r"set\xe9\x1b[31m" in shown
    status, _, complaint = doap("data", "show", os.fsdecode(b"caf\xe9"), "-o", "sheet.png")
    assert status == 1
    assert complaint.startswith(r"doap: caf\xe9: not a patch set")
    assert complaint.count("\n") == 1
