import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from doap import PatchSet
from doap.cli.main import app, main
from doap.datasets.label_mining.mining import MinedLabels, count_pairs


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PatchSet:
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (120, 32, 32), dtype=np.uint8)
    groups = np.arange(120) // 4
    patches = PatchSet([pixels], groups, groups % 2, sequence_names=["north", "south"])
    patches.save("set")
    return patches


def test_help_has_an_example() -> None:
    result = CliRunner().invoke(app, ["data", "mine", "--help"])
    assert result.exit_code == 0
    assert "Example: doap data mine" in " ".join(result.output.split())


def test_mines_counts_draws_and_saves(saved: PatchSet) -> None:
    options = ["-o", "out/clusters.png", "--clusters", "8", "--percentile", "30", "--save", "out/mined.npz"]
    result = CliRunner().invoke(app, ["data", "mine", "set", *options])
    assert result.exit_code == 0, result.output
    distractors, ignored = count_pairs(MinedLabels.load("out/mined.npz", saved), saved)
    for name, far, near in zip(("north", "south"), distractors, ignored, strict=True):
        assert f"{name}: {far:,} pairs of patches are distractors, {near:,}" in result.output
    assert (distractors + ignored).tolist() == [60 * 59 // 2 - 15 * 6] * 2
    with Image.open("out/clusters.png") as image:
        assert image.width > 1200


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere", "-o", "a.png"), "not a patch set"),
        (("set", "-o", "a.doc"), "figures are written as"),
        (("set", "-o", "a.png", "--save", "mined"), "written as .npz"),
    ],
)
def test_an_error_is_one_line(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["doap", "data", "mine", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    errors = capsys.readouterr().err
    assert (ended.value.code, errors.count("\n")) == (1, 1)
    assert message in errors
    assert not Path("a.png").exists()
