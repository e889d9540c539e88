"""`doap eval oxford`, run on small sequences in the official layout."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from doap import load
from support.command_line import Doap
from support.figures import is_drawn_from
from support.sets.small_pairs import write_sequence

MODELS = ("sift", "rootsift", "doap-demo-256b")


@pytest.fixture
def sequences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    for seed, name in enumerate(("bark", "graf")):
        write_sequence(tmp_path / "oxford" / name, seed)
    return tmp_path / "oxford"


def test_one_command_gives_table_json_csv_and_figure(doap: Doap, sequences: Path, tmp_path: Path) -> None:
    outputs = ("--json", "out/o.json", "--csv", "out/o.csv", "--figure", "out/o.png")
    status, shown, _ = doap("eval", "oxford", *MODELS, "--data", sequences, "--keypoints", 80, *outputs)
    assert status == 0
    result = json.loads((tmp_path / "out" / "o.json").read_text())
    assert result["benchmark"] == "oxford"
    assert (result["settings"]["detector"], result["settings"]["extent"]) == ("harris-affine", "3")
    assert "one to one" in result["settings"]["correspondences"]
    assert [about["extent"] for about in result["methods"]] == [3.0] * 3
    scores = result["scores"]
    assert len(scores) == 2 * 5 * len(MODELS)
    for name in MODELS:
        aps = np.reshape([row["ap"] for row in scores if row["descriptor"] == name], (2, 5))
        assert aps.mean() > 20  # the images are nearly alike
        lines = [line.split("│") for line in shown.splitlines() if line.startswith(f"│ {name} ")]
        assert [float(value) for value in lines[0][2:5]] == pytest.approx([*aps.mean(1), aps.mean()], abs=0.051)
        assert float(lines[1][2].split("[")[0]) == pytest.approx(aps.mean(), abs=0.051)
    tests = result["comparisons"]
    assert {(test["measure"], test["a"], test["b"]) for test in tests} == {
        (measure, a, b)
        for measure in ("ap", "matching score", "inliers")
        for a, b in (MODELS[:2], MODELS[::2], MODELS[1:])
    }
    assert "2 sequences or pairs are too few for a significant difference; 6 are needed" in shown
    with (tmp_path / "out" / "o.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert [float(row["ap"]) for row in rows] == [row["ap"] for row in scores]
    assert is_drawn_from(tmp_path / "out" / "o.png", tmp_path / "out" / "o.json")


def test_each_method_at_its_own_extent(doap: Doap, sequences: Path, tmp_path: Path) -> None:
    arguments = ("--detector", "dog", "--extent", "own", "--keypoints", 60, "sift", "doap-demo-256b")
    status, shown, _ = doap("eval", "oxford", "--data", sequences / "graf", *arguments, "--json", "o.json")
    assert status == 0
    about = json.loads((tmp_path / "o.json").read_text())["methods"]
    assert [each["in_image"] for each in about] == [True, False]
    assert about[1]["extent"] == load("doap-demo-256b").extent_for("dog")
    assert "5 pairs resampled" in shown  # one sequence: its pairs are resampled


def test_the_protocol_of_vlbenchmarks_with_vlfeats_frames(doap: Doap, sequences: Path, tmp_path: Path) -> None:
    arguments = ("--protocol", "vlbenchmarks", "--detector", "vlfeat-harris-affine", "--keypoints", 0)
    outputs = ("--json", "o.json", "--figure", "o.png")
    status, shown, _ = doap("eval", "oxford", "sift", "rootsift", "--data", sequences / "graf", *arguments, *outputs)
    assert status == 0
    assert "protocol" in shown
    assert "area under curve %" in shown
    result = json.loads((tmp_path / "o.json").read_text())
    settings = result["settings"]
    assert (settings["protocol"], settings["keypoints"], settings["frames"]) == ("vlbenchmarks", "all", "detected")
    assert "overlap error under 0.5" in settings["correspondences"]
    assert "matched one to one" in settings["correspondences"]
    assert {test["measure"] for test in result["comparisons"]} == {"ap", "area under curve", "matching score"}
    assert is_drawn_from(tmp_path / "o.png", tmp_path / "o.json")
    ap = [row["ap"] for row in result["scores"]]
    status, _, _ = doap(
        "eval", "oxford", "sift", "rootsift", "--data", sequences / "graf", *arguments, "--overlap-error", 0.2, *outputs
    )
    assert status == 0
    stricter = json.loads((tmp_path / "o.json").read_text())
    assert "overlap error under 0.2" in stricter["settings"]["correspondences"]
    assert (settings["overlap error"], stricter["settings"]["overlap error"]) == (0.5, 0.2)
    fewer = [row["correspondences"] for row in stricter["scores"]]
    assert all(few < row["correspondences"] for few, row in zip(fewer, result["scores"], strict=True))
    assert ap != [row["ap"] for row in stricter["scores"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--detector", "sift"), "--detector sift: unknown; choose one of dog, harris"),
        (("--extent", "large"), "--extent: must be a number greater than 0, or own; not large"),
        (("--extent", "-1"), "--extent: must be a number greater than 0"),
        (("--overlap-error", "0.4"), "overlap error: only the protocol vlbenchmarks has one to choose"),
        (("--protocol", "vlbenchmarks", "--overlap-error", "2"), "overlap error: must be between 0 and 1, not 2"),
        (("--figure", "o.txt"), "o.txt: figures are written as"),
        (("nothing",), "nothing: no such"),
    ],
)
def test_errors_are_one_line(doap: Doap, sequences: Path, arguments: tuple[str, ...], message: str) -> None:
    status, _, error = doap("eval", "oxford", "--data", sequences, *arguments)
    assert status == 1
    assert message in error
    assert error.count("\n") == 1


def test_a_corrupt_image_ends_the_run_with_its_name(doap: Doap, sequences: Path) -> None:
    (sequences / "graf" / "img4.png").write_bytes(b"no picture")
    status, _, error = doap("eval", "oxford", "sift", "--data", sequences, "--keypoints", 30)
    assert status == 1
    assert "img4.png: not an image" in error
