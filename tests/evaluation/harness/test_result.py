"""Results are read back as they were written, names of older files are translated, errors are one line."""

import csv
import json
from pathlib import Path

import pytest

import doap
from doap.errors import DoapError
from doap.evaluation.harness.result import OLD_NAMES, Result, read_result
from doap.evaluation.image_pairs.scoring import COLUMNS

RESULT = Result(
    benchmark="oxford",
    settings={"data": "some/folder", "rule": "ties have no order", "keypoints": 1000},
    methods=[{"name": "sift", "bytes": 512}],
    scores=[
        {"descriptor": "sift", "sequence": "graf, tilted", "ap": 12.5, "inliers": 7},
        {"descriptor": "sift", "sequence": "boat", "ap": 100.0, "inliers": None, "seconds": 0.1},
    ],
    curves=[{"descriptor": "sift", "recall": [0.0, 0.5]}],
)


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    RESULT.write_json(tmp_path / "new" / "result.json")
    actual = read_result(tmp_path / "new" / "result.json")
    assert actual == RESULT
    assert isinstance(actual.scores[1]["ap"], float)
    assert (actual.doap, set(actual.versions)) == (doap.__version__, {"torch", "numpy", "python"})
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["result.json"]


def test_names_of_version_0_1_are_translated(tmp_path: Path) -> None:
    old = {
        "benchmark": "pairs",
        "settings": {"left out": []},
        "contenders": [{"name": "sift", "given": "sift", "fair": 1}],
        "scores": [
            {"descriptor": "sift", "rule": "fair", "value": 1.5},
            {"descriptor": "sift", "rule": "official", "value": 2.5},
            {"descriptor": "fair", "right within 3 px": 30.0, "geometry right": 100.0, "right neighbours": None},
        ],
    }
    (tmp_path / "old.json").write_text(json.dumps(old))
    result = read_result(tmp_path / "old.json")
    assert result.methods[0]["spec"] == "sift"
    assert [score.get("rule") for score in result.scores] == ["tie-aware", "official", None]
    assert result.scores[0] == {"descriptor": "sift", "rule": "tie-aware", "value": 1.5}
    assert result.scores[2] == {
        "descriptor": "fair", "correct within 3 px": 30.0, "geometry correct": 100.0, "correct neighbours": None,
    }  # fmt: skip


def test_every_column_of_image_pairs_that_was_renamed_is_translated() -> None:
    renamed = {name for name in COLUMNS if name.startswith("correct within") or name == "geometry correct"}
    assert renamed <= set(OLD_NAMES.values())


def test_results_of_before_there_were_curves_are_read(tmp_path: Path) -> None:
    content = RESULT.model_dump(exclude={"curves"})
    (tmp_path / "old.json").write_text(json.dumps(content))
    assert read_result(tmp_path / "old.json").curves == []


def test_the_table_has_every_column_of_any_row(tmp_path: Path) -> None:
    RESULT.write_csv(tmp_path / "result.csv")
    with (tmp_path / "result.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["descriptor", "sequence", "ap", "inliers", "seconds"]
    assert [(row["sequence"], row["ap"], row["inliers"], row["seconds"]) for row in rows] == [
        ("graf, tilted", "12.5", "7", ""),
        ("boat", "100.0", "", "0.1"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("", "not the result of a benchmark"),
        ('{"benchmark": "oxf', "not the result of a benchmark"),
        ("[1, 2]", "not the result of a benchmark"),
        ('{"benchmark": "oxford"}', "settings: Field required"),
        (json.dumps(RESULT.model_dump() | {"extra": 1}), "extra: Extra inputs"),
        (json.dumps(RESULT.model_dump() | {"scores": [{"ap": [1]}]}), "not the result of a benchmark"),
    ],
)
def test_errors_are_one_line_that_names_the_file(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "result.json").write_text(content)
    with pytest.raises(DoapError, match=message) as error:
        read_result(tmp_path / "result.json")
    assert str(error.value).startswith(str(tmp_path / "result.json"))
    assert "\n" not in str(error.value)
