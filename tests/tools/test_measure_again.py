"""tools/measure_again.py: recorded rows are measured again with the settings of their result."""

from pathlib import Path
from typing import Any

import pytest

import measure_again
from doap.evaluation.harness.methods import open_methods
from doap.evaluation.harness.result import Result, read_result
from doap.evaluation.hpatches.benchmark import HPatches
from doap.evaluation.image_pairs.oxford import Oxford
from support.sets.small_official_sets import make_hpatches
from support.sets.small_pairs import write_sequence

MODEL = "doap-tiny-128"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A result of two descriptors, whose data is named relative to the folder of the test."""
    write_sequence(tmp_path / "data" / "oxford" / "graf", seed=1)
    benchmark = Oxford(
        tmp_path / "data" / "oxford", "dog", extent=12.0, keypoints=60, protocol="vlbenchmarks", overlap_error=0.2
    )
    result = benchmark.evaluate(open_methods([MODEL, "sift"], extent=12.0, detector="dog"))
    file = tmp_path / "recorded.json"
    result.model_copy(update={"settings": {**result.settings, "data": "data/oxford"}}).write_json(file)
    return file


def rows(result: Result, name: str) -> list[dict[str, Any]]:
    return [row for row in result.scores if row["descriptor"] == name]


def test_rows_of_other_weights_are_replaced(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = read_result(recorded)
    changed = [{**row, "ap": 1.0} if row["descriptor"] == MODEL else row for row in result.scores]
    result.model_copy(update={"scores": changed}).write_json(recorded)
    measure_again.main([MODEL, "--results", str(recorded), "--root", str(tmp_path), "--device", "cpu"])
    again = read_result(recorded)
    for name in (MODEL, "sift"):
        assert rows(again, name) == rows(result, name)
    assert again.settings == result.settings
    printed = capsys.readouterr().out
    assert printed.startswith(f"recorded.json, {MODEL}: largest difference ")
    assert float(printed.split()[-1]) == pytest.approx(max(row["ap"] for row in rows(result, MODEL)) - 1, abs=0.006)


def test_a_check_compares_and_writes_nothing(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = recorded.read_bytes()
    words = [MODEL, "rootsift", "--results", str(recorded), "--root", str(tmp_path), "--device", "cpu", "--check"]
    measure_again.main(words)
    assert recorded.read_bytes() == before
    assert capsys.readouterr().out.splitlines() == [
        f"recorded.json, {MODEL}: largest difference 0.00",
        "recorded.json, rootsift: new",
    ]


def test_the_overlap_error_of_a_result_is_repeated(recorded: Path, tmp_path: Path) -> None:
    result = read_result(recorded)
    repeated = measure_again.repeated_benchmark(result, tmp_path, "cpu")
    assert isinstance(repeated, Oxford)
    assert (repeated.protocol, repeated.overlap_error) == ("vlbenchmarks", 0.2)
    other = {key: value for key, value in result.settings.items() if key != "overlap error"}
    repeated = measure_again.repeated_benchmark(result.model_copy(update={"settings": other}), tmp_path, "cpu")
    assert isinstance(repeated, Oxford)
    assert repeated.overlap_error is None


def test_a_result_without_tasks_that_its_data_does_not_allow_is_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_hpatches(tmp_path / "hpatches", ("i_one",))
    result = HPatches(folder).evaluate(open_methods(["sift"]))
    assert len(result.settings["left out"]) == 2
    file = tmp_path / "recorded.json"
    result.model_copy(update={"settings": {**result.settings, "data": "hpatches"}}).write_json(file)
    measure_again.main(["sift", "--results", str(file), "--root", str(tmp_path), "--device", "cpu", "--check"])
    assert capsys.readouterr().out == "recorded.json, sift: largest difference 0.00\n"


def test_prefixes_that_a_result_has_are_measured_with_their_model() -> None:
    methods = [{"name": name} for name in ("doap-128@64", "sift", "doap-128", "doap-128@32", "doap-256b@64")]
    result = Result(benchmark="oxford", settings={}, methods=methods, scores=[])
    actual = measure_again.with_prefixes(["doap-128", "doap-large-128"], result)
    assert actual == ["doap-128", "doap-128@64", "doap-128@32", "doap-large-128"]


def test_rows_of_other_conditions_do_not_pass_as_equal() -> None:
    first = Result(benchmark="oxford", settings={}, methods=[], scores=[{"descriptor": "a", "pair": "1", "ap": 5.0}])
    other = first.model_copy(update={"scores": [{"descriptor": "a", "pair": "2", "ap": 5.0}]})
    assert measure_again.largest_difference(first, other, "a") == float("inf")
    assert measure_again.largest_difference(first, first, "a") == 0


def test_errors_name_the_benchmark_and_the_missing_data(recorded: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no-folder/data/oxford"):
        measure_again.main([MODEL, "--results", str(recorded), "--root", str(tmp_path / "no-folder")])
    other = tmp_path / "other.json"
    read_result(recorded).model_copy(update={"benchmark": "phototour"}).write_json(other)
    with pytest.raises(SystemExit, match=r"^results of phototour cannot be measured again here"):
        measure_again.main([MODEL, "--results", str(other), "--root", str(tmp_path)])
